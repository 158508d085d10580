/* Switches between its own stacks with swapcontext.
   Prints how often each function runs, and how often one of its own stacks becomes active. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { STACKS = 4, ROUNDS = 10, SIZE = 256 << 10 };
static ucontext_t home, others[STACKS];
static volatile int entered, worked;

__attribute__((noinline)) static void yield_home(int which) {
    worked++;
    swapcontext(&others[which], &home);
    entered++;
}

__attribute__((noinline)) static void coroutine(int which) {
    entered++;
    for (;;)
        yield_home(which);
}

__attribute__((noinline)) static void visit(int which) { swapcontext(&home, &others[which]); }

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    for (int which = 0; which < STACKS; which++) {
        getcontext(&others[which]);
        others[which].uc_stack.ss_sp = malloc(SIZE);
        others[which].uc_stack.ss_size = SIZE;
        others[which].uc_link = &home;
        makecontext(&others[which], (void (*)(void))coroutine, 1, which);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int which = 0; which < STACKS; which++)
            visit(which);
    printf("returned visit %d\nreturned yield_home %d\nopen yield_home %d\nstacks %d\nentered %d\n", STACKS * ROUNDS,
           worked - STACKS, STACKS, STACKS + 1, entered);
    return 0;
}
