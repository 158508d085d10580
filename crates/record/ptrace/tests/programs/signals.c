/* Signals with handlers, on the same stack and on an alternate one, from raise, from a fault and nested; also signals
   without handlers. Prints how many handlers run and how they end. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int plain, nested, own, fault;
static sigjmp_buf way_out;
static char *volatile page;

__attribute__((noinline)) static void on_plain(int number) { (void)number; plain++; }
__attribute__((noinline)) static void on_nested(int number) { (void)number; nested++; raise(SIGUSR1); }
__attribute__((noinline)) static void on_own(int number) { (void)number; own++; }
__attribute__((noinline)) static void on_fault(int number) {
    (void)number;
    fault++;
    if (fault % 2)
        siglongjmp(way_out, 1);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(number, &action, NULL);
}

__attribute__((noinline)) static void touch(void) { *page = 1; }

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    handle(SIGUSR1, on_plain, 0);
    handle(SIGUSR2, on_nested, 0);
    handle(SIGALRM, on_own, SA_ONSTACK);
    handle(SIGSEGV, on_fault, SA_NODEFER);
    signal(SIGURG, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    for (int round = 0; round < 6; round++) {
        raise(SIGUSR1);
        raise(SIGUSR2);
        raise(SIGALRM);
        raise(SIGURG);
        raise(SIGHUP);
    }
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 4; round++) {
        mprotect(page, 4096, PROT_NONE);
        if (sigsetjmp(way_out, 1) == 0)
            touch();
    }
    printf("returned on_plain %d\nreturned on_nested %d\nreturned on_own %d\nreturned on_fault %d\n"
           "unwound on_fault %d\nunwound touch %d\nreturned touch %d\ninterrupts %d\nstacks 2\n",
           plain, nested, own, fault / 2, fault - fault / 2, fault - fault / 2, fault / 2,
           plain + nested + own + fault);
    return 0;
}
