/* Leaves functions with longjmp, from different depths.
   Prints how many frames of `descend` are unwound, and how many return. */
#include <setjmp.h>
#include <stdio.h>

static jmp_buf target;
static volatile int skipped, returned;

__attribute__((noinline)) static int descend(int depth, int leave) {
    volatile char room[40];
    room[depth % 40] = 1;
    if (depth == 0) {
        if (leave)
            longjmp(target, 1);
        returned++;
        return room[0];
    }
    int below = descend(depth - 1, leave);
    returned++;
    return below + room[depth % 40];
}

__attribute__((noinline)) static void attempt(int depth, int leave) {
    if (setjmp(target) == 0)
        descend(depth, leave);
    else
        skipped += depth + 1;
}

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    for (int round = 0; round < 30; round++)
        attempt(round % 12, round % 3 != 0);
    printf("unwound descend %d\nreturned descend %d\nreturned attempt 30\n", skipped, returned);
    return 0;
}
