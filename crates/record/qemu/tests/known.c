// A program whose calls do not depend on the processor or the system: it has no library. It calls, recurses,
// calls through a pointer, unwinds two frames at once, uses another stack, handles two signals, and waits.

typedef unsigned long word;
#define KEPT __attribute__((noinline, noclone, used))

static word system_call(word number, word a, word b, word c, word d) {
  register word fourth __asm__("r10") = d;
  word result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}

static volatile word sum;
static word other_stack[512];
static void *resume[3];

KEPT static void leaf(word n) { sum += n; }
KEPT static void recursive(word n) {
  leaf(n);
  if (n) recursive(n - 1);
  sum ^= n;
}
static void (*volatile chosen)(word) = recursive;

KEPT static void deep(void) {
  leaf(7);
  __builtin_longjmp(resume, 1);
}
KEPT static void middle(void) {
  deep();
  sum++;
}
KEPT static void unwinds(void) {
  if (!__builtin_setjmp(resume)) middle();
  leaf(8);
}

// Calls a function on another stack.
KEPT static void on_other_stack(void (*function)(word), word n) {
  __asm__ volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n call *%1\n mov %%rbx, %%rsp"
                   : : "r"(other_stack + 512), "r"(function), "D"(n)
                   : "rbx", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
}

KEPT static void handled(word signal) {
  leaf(signal);
  recursive(2);
}
__asm__(".type restorer, @function\nrestorer:\n mov $15, %eax\n syscall\n .size restorer, . - restorer");
extern void restorer(void);
struct action { void (*handler)(word); word flags; void (*restorer)(void); word mask; };

KEPT static void signals(void) {
  struct action action = {handled, 0x04000000, restorer, 0};
  system_call(13, 10, (word)&action, 0, 8);
  word process = system_call(39, 0, 0, 0, 0);
  system_call(62, process, 10, 0, 0);
  leaf(9);
  system_call(62, process, 10, 0, 0);
}

static word clock(void) {
  unsigned low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (word)high << 32 | low;
}

// Long enough for the timer of a kernel with at least 100 interrupts in a second to interrupt it.
KEPT static void waits(void) {
  for (word end = clock() + 40000000; clock() < end;)
    ;
}

KEPT static word program(void) {
  recursive(5);
  chosen(3);
  unwinds();
  on_other_stack(recursive, 4);
  for (word n = 0; n < 2000; n++) leaf(n);
  signals();
  on_other_stack(leaf, 1);
  waits();
  return sum;
}

void _start(void) {
  program();
  system_call(231, 0, 0, 0, 0);
}
