/* A Windows program whose stacks scripts/pe-truth.sh records: calls through pointers, tables and callbacks,
   recursion, exceptions, threads, the thread pool, asynchronous procedure calls, files and the registry. */
#include <windows.h>
#include <stdlib.h>
#include <stdio.h>

static volatile LONG sum;

static int compare(const void *one, const void *other) {
    return *(const int *)one - *(const int *)other;
}

static __attribute__((noinline)) int recurse(int depth) {
    if (depth == 0) {
        return (int)GetTickCount() & 1;
    }
    int below = recurse(depth - 1);
    return below + (depth & 1);
}

/* Ends with a jump to another function. */
static __attribute__((noinline)) DWORD tail(DWORD value) {
    sum += (LONG)value;
    return GetFileAttributesA("C:\\windows\\system32\\ntdll.dll");
}

static DWORD WINAPI worker(void *argument) {
    for (int i = 0; i < 20; i++) {
        InterlockedAdd(&sum, recurse(3 + i % 5));
        SleepEx(0, TRUE);
        tail(i);
    }
    return (DWORD)(size_t)argument;
}

static VOID CALLBACK asynchronous(ULONG_PTR argument) {
    InterlockedAdd(&sum, (LONG)argument);
    GetFileAttributesA("C:\\windows");
}

static VOID CALLBACK pooled(PTP_CALLBACK_INSTANCE instance, void *argument) {
    (void)instance;
    HANDLE event = argument;
    worker(NULL);
    SetEvent(event);
}

static LONG CALLBACK handler(EXCEPTION_POINTERS *pointers) {
    if (pointers->ExceptionRecord->ExceptionCode == 0xe0000001) {
        GetFileAttributesA("C:\\");
        return EXCEPTION_CONTINUE_EXECUTION;
    }
    return EXCEPTION_CONTINUE_SEARCH;
}

static BOOL CALLBACK locale(LPSTR name) {
    InterlockedAdd(&sum, name[0]);
    return recurse(2) < 100;
}

static BOOL CALLBACK once(PINIT_ONCE state, void *argument, void **context) {
    (void)state;
    (void)context;
    return tail((DWORD)(size_t)argument) != 0;
}

static void files(void) {
    char path[MAX_PATH], buffer[512];
    DWORD count;
    WIN32_FIND_DATAA found;
    GetTempPathA(sizeof path, path);
    lstrcatA(path, "stackhound-pe.txt");
    HANDLE file = CreateFileA(path, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    for (int i = 0; i < 20; i++) {
        WriteFile(file, buffer, sizeof buffer, &count, NULL);
    }
    SetFilePointer(file, 0, NULL, FILE_BEGIN);
    while (ReadFile(file, buffer, sizeof buffer, &count, NULL) && count != 0) {}
    CloseHandle(file);
    DeleteFileA(path);
    HANDLE search = FindFirstFileA("C:\\windows\\system32\\*.dll", &found);
    for (int i = 0; i < 50 && FindNextFileA(search, &found); i++) {}
    FindClose(search);
}

static void registry(void) {
    HKEY key;
    char name[256];
    DWORD length, value = 1;
    RegCreateKeyExA(HKEY_CURRENT_USER, "Software\\StackhoundTest", 0, NULL, 0, KEY_ALL_ACCESS, NULL, &key, NULL);
    RegSetValueExA(key, "value", 0, REG_DWORD, (BYTE *)&value, sizeof value);
    for (DWORD i = 0; length = sizeof name, RegEnumKeyExA(HKEY_CURRENT_USER, i, name, &length, NULL, NULL, NULL, NULL) == 0; i++) {}
    RegDeleteValueA(key, "value");
    RegCloseKey(key);
    RegDeleteKeyA(HKEY_CURRENT_USER, "Software\\StackhoundTest");
}

int main(void) {
    int numbers[200];
    for (int i = 0; i < 200; i++) {
        numbers[i] = (i * 7919) % 1000;
    }
    qsort(numbers, 200, sizeof *numbers, compare);
    AddVectoredExceptionHandler(1, handler);
    for (int i = 0; i < 5; i++) {
        RaiseException(0xe0000001, 0, 0, NULL);
    }
    HANDLE threads[4];
    for (size_t i = 0; i < 4; i++) {
        threads[i] = CreateThread(NULL, 0, worker, (void *)i, 0, NULL);
        QueueUserAPC(asynchronous, threads[i], i);
    }
    WaitForMultipleObjects(4, threads, TRUE, INFINITE);
    HANDLE event = CreateEventA(NULL, FALSE, FALSE, NULL);
    for (int i = 0; i < 3; i++) {
        TrySubmitThreadpoolCallback(pooled, event, NULL);
        WaitForSingleObject(event, INFINITE);
    }
    EnumSystemLocalesA(locale, LCID_SUPPORTED);
    INIT_ONCE state = INIT_ONCE_STATIC_INIT;
    InitOnceExecuteOnce(&state, once, (void *)3, NULL);
    files();
    registry();
    for (int i = 0; i < 5; i++) {
        HMODULE module = LoadLibraryA(i % 2 ? "version.dll" : "ws2_32.dll");
        GetProcAddress(module, "missing");
        FreeLibrary(module);
    }
    printf("%d\n", recurse(20));
    return 0;
}
