/* bcryptprimitives.dll for Wine 8, which lacks it. Rust's standard library gets its random numbers from ProcessPrng.
 * This library forwards to RtlGenRandom. For tests only. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length); /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    const SIZE_T most = 0x10000;
    while (length > 0) {
        ULONG part = (ULONG)(length < most ? length : most);
        if (!SystemFunction036(buffer, part))
            return FALSE;
        buffer += part;
        length -= part;
    }
    return TRUE;
}
