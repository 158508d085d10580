/* Code that is written while the program runs: to memory that stays writable, to memory that is made executable after each
   change, and to memory that is mapped twice. The same bytes are alternately a function without a call and one with a
   call. Prints how often the called functions run. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int reached;
__attribute__((noinline)) static void callee(void) { reached++; }

/* mov $1, %eax; ret */
static const unsigned char plain[] = {0xb8, 1, 0, 0, 0, 0xc3};
/* sub $8, %rsp; mov $callee, %rax; call *%rax; add $8, %rsp; ret */
static unsigned char calling[] = {0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,
                                  0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3};

static void write_code(unsigned char *target, const unsigned char *code, size_t size) {
    /* Without a library function, whose code could be decoded in between. */
    for (size_t at = 0; at < size; at++)
        ((volatile unsigned char *)target)[at] = code[at];
}

static void run(unsigned char *code) { ((void (*)(void))code)(); }

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    void (*target)(void) = callee;
    memcpy(calling + 6, &target, 8);
    unsigned char *writable =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *turned = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = memfd_create("code", 0);
    if (ftruncate(file, 4096))
        return 1;
    unsigned char *written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *executed = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    int runs = 0;
    for (int round = 0; round < 6; round++) {
        int calls = round % 2;
        const unsigned char *code = calls ? calling : plain;
        size_t size = calls ? sizeof calling : sizeof plain;
        write_code(writable, code, size);
        run(writable);
        mprotect(turned, 4096, PROT_READ | PROT_WRITE);
        write_code(turned, code, size);
        mprotect(turned, 4096, PROT_READ | PROT_EXEC);
        run(turned);
        write_code(written, code, size);
        run(executed);
        runs += 3;
    }
    printf("returned callee %d\nreturned run %d\nstacks 1\n", reached, runs);
    return 0;
}
