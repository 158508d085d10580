/* Code with unusual calls and returns: tail calls, a call that only reads the program counter, indirect calls through a
   return (as for mitigations of branch prediction), functions that pop their arguments, large frames, deep recursion.
   Prints how often each function runs. */
#include <alloca.h>
#include <stdio.h>

enum { TIMES = 25, DEPTH = 20000 };
static volatile int targets;

long tail_first(void), tail_second(void), where(void), freeing(long, long), by_return(void (*)(void));
void speculation_trap(void);

__asm__(".text\n"
        ".type tail_first, @function\ntail_first: jmp tail_second\n.size tail_first, .-tail_first\n"
        ".type tail_second, @function\ntail_second: mov $7, %eax\nret\n.size tail_second, .-tail_second\n"
        /* A call to the next instruction, whose return address is popped at once. */
        ".type where, @function\nwhere: call 1f\n1: pop %rax\nret\n.size where, .-where\n"
        /* The callee pops two arguments. */
        ".type freeing, @function\nfreeing: lea (%rdi,%rsi), %rax\nret $16\n.size freeing, .-freeing\n"
        /* An indirect call as compilers generate it as a mitigation of branch prediction. */
        ".type by_return, @function\nby_return: sub $8, %rsp\ncall thunk\nadd $8, %rsp\nret\n.size by_return, .-by_return\n"
        ".type thunk, @function\nthunk: call 2f\n1: pause\njmp 1b\n2: mov %rdi, (%rsp)\nret\n.size thunk, .-thunk\n");

__attribute__((noinline)) static void target(void) { targets++; }

__attribute__((noinline)) static int deep(int depth) {
    int below = depth ? deep(depth - 1) : 0;
    __asm__ volatile("" ::: "memory");
    return below + 1;
}

__attribute__((noinline)) static int large(int size) {
    char *room = alloca(size);
    room[0] = room[size / 2] = 1;
    __asm__ volatile("" ::"r"(room) : "memory");
    return room[size / 2];
}

static long call_freeing(void) {
    long result;
    __asm__ volatile("mov %%rsp, %%rbx\nsub $256, %%rsp\nand $-16, %%rsp\nmov $3, %%edi\nmov $4, %%esi\ncall freeing\n"
                     "mov %%rbx, %%rsp\n"
                     : "=a"(result)
                     :
                     : "rbx", "rdi", "rsi", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory");
    return result;
}

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    long sum = 0;
    for (int time = 0; time < TIMES; time++) {
        sum += tail_first();
        sum += where() != 0;
        sum += call_freeing();
        by_return(target);
        sum += large(200000 + time);
    }
    sum += deep(DEPTH - 1);
    printf("returned tail_first %d\nreturned where %d\nreturned freeing %d\nreturned by_return %d\nreturned large %d\n"
           "returned deep %d\ntargets %d\nelsewhere 0\nsum %ld\n",
           TIMES, TIMES, TIMES, TIMES, TIMES, DEPTH, targets, sum);
    return sum != TIMES * 16L + DEPTH;
}
