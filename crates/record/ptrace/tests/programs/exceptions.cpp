// Throws exceptions through functions, some of which have objects to destroy.
// Prints how many frames of each are unwound, and how many return.
#include <cstdio>
#include <stdexcept>

static volatile int destroyed, skipped, skipped_plain, returned, returned_plain;

struct Guard {
    __attribute__((noinline)) ~Guard() { destroyed = destroyed + 1; }
};

__attribute__((noinline)) static int thrower(int depth, bool fail);

__attribute__((noinline)) static int plain(int depth, bool fail) {
    int below = thrower(depth, fail);
    returned_plain = returned_plain + 1;
    return below + 1;
}

__attribute__((noinline)) static int thrower(int depth, bool fail) {
    Guard guard;
    if (depth == 0) {
        if (fail)
            throw std::runtime_error("as asked for");
        returned = returned + 1;
        return 0;
    }
    int below = plain(depth - 1, fail);
    returned = returned + 1;
    return below;
}

__attribute__((noinline)) static int attempt(int depth, bool fail) {
    try {
        return thrower(depth, fail);
    } catch (const std::exception &) {
        skipped = skipped + depth + 1;
        skipped_plain = skipped_plain + depth;
        return -1;
    }
}

int main(int count, char **arguments) {
    if (count > 1 && !std::freopen(arguments[1], "w", stdout))
        return 1;
    int sum = 0;
    for (int round = 0; round < 12; round++)
        sum += attempt(round % 9, round % 2 == 0);
    std::printf("unwound thrower %d\nunwound plain %d\nreturned thrower %d\nreturned plain %d\nreturned Guard::~Guard %d\n"
                "returned attempt 12\n",
                skipped, skipped_plain, returned, returned_plain, destroyed);
    return sum == 1000000;
}
