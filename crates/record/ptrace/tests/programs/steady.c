/* Behaves the same each time: sorts generated numbers, and prints no counts. */
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *left, const void *right) {
    unsigned a = *(const unsigned *)left, b = *(const unsigned *)right;
    return (a > b) - (a < b);
}

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    unsigned numbers[100], state = 1;
    for (int at = 0; at < 100; at++)
        numbers[at] = state = state * 1664525 + 1013904223;
    qsort(numbers, 100, sizeof *numbers, compare);
    printf("%u %u\n", numbers[0], numbers[99]);
    return 3;
}
