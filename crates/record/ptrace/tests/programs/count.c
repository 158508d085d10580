/* Steps through a program and counts calls and returns, with its own decoder that recognizes only these.
   It shares no code and no library with the recorder. Prints: steps, calls, returns, exit code.
   All iterations of a repeated instruction count as one step. Programs with one thread only. */
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* 1 for a call, 2 for a return, 3 for a repeated string instruction, 0 for other instructions. */
static int kind(const unsigned char *code) {
    int repeat = 0;
    while (*code == 0x66 || *code == 0x67 || *code == 0x2e || *code == 0x36 || *code == 0x3e || *code == 0x26 ||
           *code == 0x64 || *code == 0x65 || *code == 0xf2 || *code == 0xf3) {
        repeat |= *code == 0xf2 || *code == 0xf3;
        code++;
    }
    if ((*code & 0xf0) == 0x40)
        code++;
    if (*code == 0xe8 || (*code == 0xff && ((code[1] >> 3 & 7) == 2 || (code[1] >> 3 & 7) == 3)))
        return 1;
    if (*code == 0xc3 || *code == 0xc2)
        return 2;
    int string = (*code >= 0xa4 && *code <= 0xa7) || (*code >= 0xaa && *code <= 0xaf);
    return repeat && string ? 3 : 0;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    unsigned long limit = strtoul(arguments[1], NULL, 10), steps = 0, calls = 0, returns = 0;
    pid_t child = fork();
    if (child == 0) {
        personality(personality(0xffffffff) | ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execvp(arguments[2], arguments + 2);
        _exit(127);
    }
    int status, signal = 0;
    waitpid(child, &status, 0);
    while (WIFSTOPPED(status) && steps < limit) {
        struct user_regs_struct before, after;
        union { long word[2]; unsigned char byte[16]; } code;
        ptrace(PTRACE_GETREGS, child, 0, &before);
        code.word[0] = ptrace(PTRACE_PEEKTEXT, child, before.rip, 0);
        code.word[1] = ptrace(PTRACE_PEEKTEXT, child, before.rip + 8, 0);
        int found = kind(code.byte);
        ptrace(PTRACE_SINGLESTEP, child, 0, signal);
        waitpid(child, &status, 0);
        signal = 0;
        if (WIFSTOPPED(status)) {
            if (WSTOPSIG(status) != SIGTRAP) {
                signal = WSTOPSIG(status);
                continue;
            }
            ptrace(PTRACE_GETREGS, child, 0, &after);
            if (found == 3 && after.rip == before.rip)
                continue;
        }
        steps++;
        calls += found == 1;
        returns += found == 2;
    }
    if (WIFSTOPPED(status)) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    fprintf(stderr, "%lu %lu %lu %d\n", steps, calls, returns, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
