/* Who is on a GPU: the process lists, each process's part of the windows, the windows themselves. */
#include "fake.h"

#include <string.h>

/* Drivers 535.43 to 535.86 had one member more under the same _v3 symbol. */
struct process_info_535 {
    nvmlProcessInfo_v2_t info;
    unsigned long long protected_memory;
};

/* Writes the processes of one list; the versions of the struct differ only in where it ends. */
static nvmlReturn_t list(const struct call *call, enum list wanted, size_t size,
                         unsigned int *number, void *infos)
{
    if (number == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = infos == NULL ? 0 : *number;
    *number = 0;
    for (uint32_t i = 0; i < call->gpu.process_count && !call->node.lists_empty; i++) {
        const struct ProcessEntry *process = &call->gpu.processes[i];
        if ((process->kinds & wanted) == 0)
            continue;
        if (*number < room) {
            struct process_info_535 info = {
                {process->pid, process->memory, process->gpu_instance, process->compute_instance},
                0};
            memcpy((char *)infos + *number * size, &info, size);
        }
        ++*number;
    }
    return *number > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define LIST_CALL(function, type, wanted, size)                                                    \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *number, type *infos)                  \
    {                                                                                              \
        DEVICE_CALL(function)                                                                      \
        return list(&call, wanted, size, number, infos);                                           \
    }

#define LIST_CALLS(name, wanted)                                                                   \
    LIST_CALL(name, nvmlProcessInfo_v1_t, wanted, sizeof(nvmlProcessInfo_v1_t))                    \
    LIST_CALL(name##_v2, nvmlProcessInfo_v2_t, wanted, sizeof(nvmlProcessInfo_v2_t))               \
    LIST_CALL(name##_v3, nvmlProcessInfo_t, wanted, call.node.process_entry_size)

LIST_CALLS(nvmlDeviceGetComputeRunningProcesses, LIST_COMPUTE)
LIST_CALLS(nvmlDeviceGetGraphicsRunningProcesses, LIST_GRAPHICS)
LIST_CALLS(nvmlDeviceGetMPSComputeRunningProcesses, LIST_MPS)

/* A process's windows, added up; sm and the others are sums until they are divided. */
static struct SampleEntry *sample_of(struct SampleEntry *samples, unsigned int *number,
                                     uint32_t pid)
{
    for (unsigned int i = 0; i < *number; i++)
        if (samples[i].pid == pid)
            return &samples[i];
    if (*number == MAX_PROCESSES)
        return &samples[MAX_PROCESSES - 1];
    struct SampleEntry *sample = &samples[(*number)++];
    memset(sample, 0, sizeof *sample);
    sample->pid = pid;
    return sample;
}

/* The denominator is every window but those of the dead; sm is rounded up, the rest down. */
static unsigned int compute_samples(const struct GpuState *gpu, uint64_t since,
                                    struct SampleEntry *samples)
{
    unsigned int number = 0;
    uint32_t windows = 0;
    if (gpu->process_count == 0)
        return 0;
    for (uint32_t i = 0; i < gpu->window_count; i++) {
        const struct WindowEntry *window = &gpu->windows[i];
        if (window->end <= since || (window->owner != 0 && !window->owner_alive))
            continue;
        windows++;
        if (window->owner == 0)
            continue;
        struct SampleEntry *sample = sample_of(samples, &number, window->owner);
        sample->at = window->end;
        sample->sm += window->gpu;
        sample->memory += window->memory == UNSET ? 0 : (uint32_t)window->memory;
        sample->encoder += window->encoder;
        sample->decoder += window->decoder;
    }
    for (unsigned int i = 0; i < number; i++) {
        samples[i].sm = (samples[i].sm + windows - 1) / windows;
        samples[i].memory /= windows;
        samples[i].encoder /= windows;
        samples[i].decoder /= windows;
    }
    if (number == 0 && windows > 0 && gpu->last_owner != 0)
        sample_of(samples, &number, gpu->last_owner)->at = gpu->last_owner_end;
    return number;
}

/* Finds the samples of a reply, and says what the driver would say to a caller with that room. */
static nvmlReturn_t find_samples(const struct GpuState *gpu, uint64_t since, unsigned int room,
                                 struct SampleEntry *samples, unsigned int *number)
{
    if (gpu->sample_mode == SAMPLES_SAY_100) {
        *number = 100;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if (gpu->sample_mode != SAMPLES_LITERAL && is_cut(gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    if (gpu->sample_mode == SAMPLES_LITERAL) {
        *number = gpu->sample_count;
        memcpy(samples, gpu->samples, sizeof gpu->samples);
    } else {
        *number = compute_samples(gpu, since, samples);
    }
    if (*number == 0)
        return gpu->sample_mode == SAMPLES_EMPTY_SUCCESS ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    return *number > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *number, unsigned long long since)
{
    DEVICE_CALL(nvmlDeviceGetProcessUtilization)
    if (number == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct SampleEntry samples[MAX_PROCESSES];
    unsigned int room = utilization == NULL ? 0 : *number;
    nvmlReturn_t result = find_samples(&call.gpu, since, room, samples, number);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < *number; i++)
        utilization[i] = (nvmlProcessUtilizationSample_t){
            .pid = samples[i].pid,
            .timeStamp = samples[i].at,
            .smUtil = samples[i].sm,
            .memUtil = samples[i].memory,
            .encUtil = samples[i].encoder,
            .decUtil = samples[i].decoder,
        };
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *reply)
{
    DEVICE_CALL(nvmlDeviceGetProcessesUtilizationInfo)
    if (reply == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (reply->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct SampleEntry samples[MAX_PROCESSES];
    unsigned int room = reply->procUtilArray == NULL ? 0 : reply->processSamplesCount;
    nvmlReturn_t result = find_samples(&call.gpu, reply->lastSeenTimeStamp, room, samples,
                                       &reply->processSamplesCount);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < reply->processSamplesCount; i++)
        reply->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .pid = samples[i].pid,
            .timeStamp = samples[i].at,
            .smUtil = samples[i].sm,
            .memUtil = samples[i].memory,
            .encUtil = samples[i].encoder,
            .decUtil = samples[i].decoder,
        };
    return result;
}

/* Puts a sample in where there is room; counts it either way when nobody gave any. */
static void add_sample(nvmlSample_t *samples, unsigned int room, unsigned int *number,
                       uint64_t time, uint64_t value)
{
    if (samples != NULL && *number >= room)
        return;
    if (samples != NULL) {
        samples[*number].timeStamp = time;
        samples[*number].sampleValue.uiVal = (unsigned int)value;
    }
    ++*number;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since, nvmlValueType_t *value_type,
                                  unsigned int *number, nvmlSample_t *samples)
{
    DEVICE_CALL(nvmlDeviceGetSamples)
    if (value_type == NULL || number == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *number;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    *number = 0;
    if (type != NVML_TOTAL_POWER_SAMPLES && is_cut(&call.gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES:
        for (uint32_t i = 0; i < call.gpu.power_sample_count; i++)
            if (call.gpu.power_samples[i].at > since)
                add_sample(samples, room, number, call.gpu.power_samples[i].at,
                           call.gpu.power_samples[i].milliwatts);
        break;
    case NVML_GPU_UTILIZATION_SAMPLES:
        for (uint32_t i = 0; i < call.gpu.window_count; i++)
            if (call.gpu.windows[i].end > since)
                add_sample(samples, room, number, call.gpu.windows[i].end, call.gpu.windows[i].gpu);
        break;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
        for (uint32_t i = 0; i < call.gpu.window_count; i++)
            if (call.gpu.windows[i].end > since && call.gpu.windows[i].memory != UNSET)
                add_sample(samples, room, number, call.gpu.windows[i].end,
                           (uint64_t)call.gpu.windows[i].memory);
        break;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
    return *number == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}
