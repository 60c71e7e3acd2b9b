/* The library itself: its memory shared with Python, its life, and the questions about the node. */
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 10000000L

_Static_assert(FUNCTIONS <= MAX_FUNCTIONS, "more functions than the layout has room for");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Shared *shared;
static struct stat shared_file;
static unsigned int inits;
static uint32_t generation;
static struct nvmlDevice_st handles[MAX_GPUS];

static void look(struct call *call, int slot)
{
    uint64_t sequence;
    do {
        sequence = __atomic_load_n(&shared->sequence, __ATOMIC_ACQUIRE);
        const struct State *state = &shared->slots[sequence & 1];
        call->node = state->node;
        if (slot != NO_GPU)
            call->gpu = state->gpus[slot];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (sequence != __atomic_load_n(&shared->sequence, __ATOMIC_RELAXED));
    call->slot = slot;
}

static int is_there(const struct NodeState *node, int slot)
{
    return slot >= 0 && (uint32_t)slot < node->gpu_count + node->instance_count;
}

int look_at(struct call *call, int slot)
{
    if (!is_there(&call->node, slot))
        return 0;
    look(call, slot);
    return 1;
}

static const struct Directive *directive_for(const struct call *call, enum function function)
{
    for (uint32_t i = 0; i < call->node.directive_count; i++) {
        const struct Directive *directive = &call->node.directives[i];
        int function_fits = directive->function == ANY || directive->function == (int)function;
        int gpu_fits = directive->gpu == ANY ||
                       (call->slot != NO_GPU && (directive->gpu == call->slot ||
                                                 directive->gpu == call->gpu.parent));
        if (function_fits && gpu_fits)
            return directive;
    }
    return NULL;
}

/* Waits as long as the state says "hang"; the lock is held on entry and on return. */
static nvmlReturn_t obey(struct call *call, enum function function, int slot)
{
    const struct timespec poll = {0, POLL_NS};
    for (;;) {
        look(call, slot);
        const struct Directive *directive = directive_for(call, function);
        if (directive == NULL)
            return NVML_SUCCESS;
        if (directive->action == ACT_FAIL)
            return (nvmlReturn_t)directive->code;
        if (directive->action == ACT_HANG)
            pthread_mutex_unlock(&lock);
        nanosleep(&poll, NULL);
        if (directive->action == ACT_HANG)
            pthread_mutex_lock(&lock);
    }
}

static void count(enum function function, int slot)
{
    int row = slot == NO_GPU ? MAX_GPUS : slot;
    __atomic_fetch_add(&shared->calls[row][function], 1, __ATOMIC_RELAXED);
}

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void pay(const struct Cost *cost)
{
    if (cost->wait_us > 0) {
        struct timespec wait = {cost->wait_us / 1000000, (long)(cost->wait_us % 1000000) * 1000};
        nanosleep(&wait, NULL);
    }
    if (cost->cpu_us > 0) {
        int64_t end = nanoseconds(CLOCK_THREAD_CPUTIME_ID) + cost->cpu_us * INT64_C(1000);
        while (nanoseconds(CLOCK_THREAD_CPUTIME_ID) < end)
            continue;
    }
}

nvmlReturn_t enter(struct call *call, enum function function, int slot)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    if (inits > 0) {
        count(function, slot);
        result = obey(call, function, slot);
        if (result == NVML_SUCCESS && call->node.generation != generation)
            result = NVML_ERROR_UNINITIALIZED;
        if (result == NVML_SUCCESS && slot != NO_GPU && !is_there(&call->node, slot))
            result = NVML_ERROR_INVALID_ARGUMENT;
    }
    pthread_mutex_unlock(&lock);
    if (result == NVML_SUCCESS)
        pay(&call->node.costs[function]);
    return result;
}

nvmlReturn_t enter_device(struct call *call, enum function function, nvmlDevice_t device)
{
    if (device < handles || device >= handles + MAX_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return enter(call, function, (int)(device - handles));
}

nvmlDevice_t handle_of(int slot)
{
    return &handles[slot];
}

nvmlReturn_t give_text(const char *text, char *out, unsigned int length)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (text[0] == '\0')
        return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

/* Another node's memory stays mapped: a call under way may still be looking at it. */
static nvmlReturn_t attach(void)
{
    const char *path = getenv("FAKE_NVML_STATE");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    nvmlReturn_t result = NVML_SUCCESS;
    struct stat found;
    if (fstat(file, &found) != 0 || found.st_size != sizeof(struct Shared)) {
        result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    } else if (shared == NULL || found.st_dev != shared_file.st_dev ||
               found.st_ino != shared_file.st_ino) {
        void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED || ((struct Shared *)memory)->magic != MAGIC) {
            result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        } else {
            shared = memory;
            shared_file = found;
        }
    }
    close(file);
    return result;
}

static nvmlReturn_t initialise(enum function function)
{
    struct call call;
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = inits > 0 ? NVML_SUCCESS : attach();
    if (result == NVML_SUCCESS) {
        count(function, NO_GPU);
        result = obey(&call, function, NO_GPU);
    }
    if (result == NVML_SUCCESS && inits++ == 0)
        generation = call.node.generation;
    pthread_mutex_unlock(&lock);
    if (result == NVML_SUCCESS)
        pay(&call.node.costs[function]);
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return initialise(FN_nvmlInit_v2);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return initialise(FN_nvmlInitWithFlags);
}

nvmlReturn_t nvmlShutdown(void)
{
    struct call call;
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    if (inits > 0) {
        count(FN_nvmlShutdown, NO_GPU);
        result = obey(&call, FN_nvmlShutdown, NO_GPU);
        if (result == NVML_SUCCESS)
            inits--;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Not NVML's: a test that forgot nvmlShutdown must not leave the library to the next one. */
void fakeForget(void)
{
    pthread_mutex_lock(&lock);
    inits = 0;
    pthread_mutex_unlock(&lock);
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "fake NVML error %d", (int)result);
    return text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    NODE_CALL(nvmlSystemGetDriverVersion, NO_GPU)
    return give_text(call.node.driver_version, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    NODE_CALL(nvmlSystemGetNVMLVersion, NO_GPU)
    return give_text(call.node.nvml_version, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    NODE_CALL(nvmlSystemGetCudaDriverVersion, NO_GPU)
    GIVE(call.node.cuda_version, version);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    NODE_CALL(nvmlSystemGetCudaDriverVersion_v2, NO_GPU)
    GIVE(call.node.cuda_version, version);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *number)
{
    NODE_CALL(nvmlDeviceGetCount_v2, NO_GPU)
    GIVE(call.node.gpu_count, number);
    return NVML_SUCCESS;
}
