/* Threads that call functions, wait for each other, and end in two ways.
   Prints how often each function runs. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 5, CALLS = 40 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn, done;

__attribute__((noinline)) static int recurse(int depth) {
    int below = depth ? recurse(depth - 1) : 0;
    asm volatile("" ::: "memory");
    return below + 1;
}

__attribute__((noinline)) static void take_turn(int which) {
    pthread_mutex_lock(&lock);
    while (turn != which)
        pthread_cond_wait(&turned, &lock);
    turn = (turn + 1) % THREADS;
    done += recurse(9);
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void leave(void) { pthread_exit(NULL); }

__attribute__((noinline)) static void *work(void *argument) {
    int which = (int)(long)argument;
    for (int call = 0; call < CALLS; call++)
        take_turn(which);
    if (which == 0)
        leave();
    return argument;
}

int main(int count, char **arguments) {
    if (count > 1 && !freopen(arguments[1], "w", stdout))
        return 1;
    pthread_t threads[THREADS];
    for (long which = 0; which < THREADS; which++)
        pthread_create(&threads[which], NULL, work, (void *)which);
    for (int which = 0; which < THREADS; which++)
        pthread_join(threads[which], NULL);
    printf("returned take_turn %d\nreturned recurse %d\nreturned work %d\nunwound work 1\nunwound leave 1\n"
           "stacks %d\n",
           THREADS * CALLS, done, THREADS - 1, THREADS + 1);
    return 0;
}
