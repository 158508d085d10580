/* Calls of functions in a library. Prints how often it calls each. `strlen` has variants, one of which is chosen for the
   processor when it is bound. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TIMES = 20 };

int main(int count, char **arguments) {
    volatile size_t sum = 0;
    char text[] = "a text of some length";
    for (int time = 0; time < TIMES; time++) {
        text[time] = (toupper)(text[time]);
        if (time % 2)
            sum += strlen(text + time / 2);
    }
    FILE *out = count > 1 ? fopen(arguments[1], "w") : stdout;
    if (!out)
        return 1;
    fprintf(out, "toupper %d\nstrlen %d\n", TIMES, TIMES / 2);
    return fclose(out) || sum != 165;
}
