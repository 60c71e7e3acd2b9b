/* A GPU's identity and figures: what the state has is the answer, and UNSET is NOT_SUPPORTED. */
#include "fake.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SCALAR_CALL(function, type, member)                                                        \
    nvmlReturn_t function(nvmlDevice_t device, type *value)                                        \
    {                                                                                              \
        DEVICE_CALL(function)                                                                      \
        GIVE(call.gpu.member, value);                                                              \
        return NVML_SUCCESS;                                                                       \
    }

SCALAR_CALL(nvmlDeviceGetMinorNumber, unsigned int, minor)
SCALAR_CALL(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, architecture)
SCALAR_CALL(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy_millijoules)
SCALAR_CALL(nvmlDeviceGetPowerUsage, unsigned int, power_milliwatts)
SCALAR_CALL(nvmlDeviceGetEnforcedPowerLimit, unsigned int, power_limit_milliwatts)
SCALAR_CALL(nvmlDeviceGetPowerManagementLimit, unsigned int, power_management_limit_milliwatts)
SCALAR_CALL(nvmlDeviceGetFanSpeed, unsigned int, fan_percent)
SCALAR_CALL(nvmlDeviceGetPerformanceState, nvmlPstates_t, performance_state)
SCALAR_CALL(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, persistence_mode)
SCALAR_CALL(nvmlDeviceGetDisplayActive, nvmlEnableState_t, display_active)
SCALAR_CALL(nvmlDeviceGetDisplayMode, nvmlEnableState_t, display_mode)
SCALAR_CALL(nvmlDeviceGetComputeMode, nvmlComputeMode_t, compute_mode)
SCALAR_CALL(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, link_generation)
SCALAR_CALL(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, link_width)
SCALAR_CALL(nvmlDeviceGetGpuInstanceId, unsigned int, gpu_instance)
SCALAR_CALL(nvmlDeviceGetComputeInstanceId, unsigned int, compute_instance)

static nvmlReturn_t find(struct call *call, const char *wanted, size_t member, nvmlDevice_t *device)
{
    if (wanted == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int slot = 0; look_at(call, slot); slot++) {
        if (strcmp((const char *)&call->gpu + member, wanted) == 0) {
            *device = handle_of(slot);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (index >= MAX_GPUS || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    NODE_CALL(nvmlDeviceGetHandleByIndex_v2, (int)index)
    if (index >= call.node.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = handle_of((int)index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    NODE_CALL(nvmlDeviceGetHandleByUUID, NO_GPU)
    return find(&call, uuid, offsetof(struct GpuState, uuid), device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci_bus_id, nvmlDevice_t *device)
{
    NODE_CALL(nvmlDeviceGetHandleByPciBusId_v2, NO_GPU)
    return find(&call, pci_bus_id, offsetof(struct GpuState, pci_bus_id), device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    DEVICE_CALL(nvmlDeviceGetIndex)
    int slot = call.slot, parent = call.gpu.parent, place = parent < 0 ? slot : 0;
    for (int i = (int)call.node.gpu_count; parent >= 0 && i < slot; i++)
        place += look_at(&call, i) && call.gpu.parent == parent;
    GIVE(place, index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    DEVICE_CALL(nvmlDeviceGetName)
    return give_text(call.gpu.name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    DEVICE_CALL(nvmlDeviceGetUUID)
    return give_text(call.gpu.uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    DEVICE_CALL(nvmlDeviceGetPciInfo_v3)
    if (pci == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    if (sscanf(call.gpu.pci_bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return NVML_ERROR_NOT_SUPPORTED;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF,
             pci->bus & 0xFF, pci->device & 0xFF);
    strcpy(pci->busId, call.gpu.pci_bus_id);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    DEVICE_CALL(nvmlDeviceGetCudaComputeCapability)
    GIVE(call.gpu.compute_capability_major, major);
    GIVE(call.gpu.compute_capability_minor, minor);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    DEVICE_CALL(nvmlDeviceGetMemoryInfo)
    int64_t reserve = call.gpu.memory_reserved == UNSET ? 0 : call.gpu.memory_reserved;
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    GIVE(call.gpu.memory_total, &memory->total);
    GIVE(call.gpu.memory_free, &memory->free);
    GIVE(call.gpu.memory_used, &memory->used);
    memory->used += (unsigned long long)reserve;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2)
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    GIVE(call.gpu.memory_total, &memory->total);
    GIVE(call.gpu.memory_reserved, &memory->reserved);
    GIVE(call.gpu.memory_free, &memory->free);
    GIVE(call.gpu.memory_used, &memory->used);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    DEVICE_CALL(nvmlDeviceGetBAR1MemoryInfo)
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    GIVE(call.gpu.bar1_total, &memory->bar1Total);
    GIVE(call.gpu.bar1_used, &memory->bar1Used);
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int number, nvmlFieldValue_t *values)
{
    DEVICE_CALL(nvmlDeviceGetFieldValues)
    if (values == NULL || number <= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < number; i++) {
        values[i].timestamp = (long long)call.node.now_us;
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        for (uint32_t j = 0; j < call.gpu.field_count; j++) {
            const struct FieldEntry *field = &call.gpu.fields[j];
            if (field->id == values[i].fieldId && field->scope == values[i].scopeId) {
                values[i].valueType = (nvmlValueType_t)field->type;
                values[i].value.ullVal = field->value;
                values[i].nvmlReturn = NVML_SUCCESS;
            }
        }
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    DEVICE_CALL(nvmlDeviceGetUtilizationRates)
    if (utilization == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (is_cut(&call.gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    GIVE(call.gpu.gpu_percent, &utilization->gpu);
    GIVE(call.gpu.memory_percent, &utilization->memory);
    return NVML_SUCCESS;
}

#define CODEC_CALL(function, member)                                                               \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)     \
    {                                                                                              \
        DEVICE_CALL(function)                                                                      \
        if (is_cut(&call.gpu))                                                                     \
            return NVML_ERROR_NOT_SUPPORTED;                                                       \
        GIVE(call.gpu.member, percent);                                                            \
        GIVE(167000, period_us);                                                                   \
        return NVML_SUCCESS;                                                                       \
    }

CODEC_CALL(nvmlDeviceGetEncoderUtilization, encoder_percent)
CODEC_CALL(nvmlDeviceGetDecoderUtilization, decoder_percent)

#define CLOCK_CALL(function, member)                                                               \
    nvmlReturn_t function(nvmlDevice_t device, nvmlClockType_t type, unsigned int *megahertz)      \
    {                                                                                              \
        DEVICE_CALL(function)                                                                      \
        if (type >= NVML_CLOCK_COUNT)                                                              \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        GIVE(call.gpu.member[type], megahertz);                                                    \
        return NVML_SUCCESS;                                                                       \
    }

CLOCK_CALL(nvmlDeviceGetClockInfo, clocks)
CLOCK_CALL(nvmlDeviceGetMaxClockInfo, max_clocks)

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius)
{
    DEVICE_CALL(nvmlDeviceGetTemperature)
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    GIVE(call.gpu.temperature_celsius, celsius);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    DEVICE_CALL(nvmlDeviceGetTemperatureV)
    if (temperature == NULL || temperature->sensorType != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    GIVE(call.gpu.temperature_celsius, &temperature->temperature);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius)
{
    DEVICE_CALL(nvmlDeviceGetTemperatureThreshold)
    if (threshold >= THRESHOLDS)
        return NVML_ERROR_INVALID_ARGUMENT;
    GIVE(call.gpu.temperature_thresholds[threshold], celsius);
    return NVML_SUCCESS;
}

/* Driver models are a thing of Windows. */
#define DRIVER_MODEL_CALL(function)                                                                \
    nvmlReturn_t function(nvmlDevice_t device, nvmlDriverModel_t *current,                         \
                          nvmlDriverModel_t *pending)                                              \
    {                                                                                              \
        (void)current;                                                                             \
        (void)pending;                                                                             \
        DEVICE_CALL(function)                                                                      \
        return NVML_ERROR_NOT_SUPPORTED;                                                           \
    }

DRIVER_MODEL_CALL(nvmlDeviceGetDriverModel)
DRIVER_MODEL_CALL(nvmlDeviceGetDriverModel_v2)

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *errors)
{
    DEVICE_CALL(nvmlDeviceGetTotalEccErrors)
    if (type >= NVML_MEMORY_ERROR_TYPE_COUNT || counter >= NVML_ECC_COUNTER_TYPE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    GIVE(call.gpu.ecc[2 * type + counter], errors);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int *kilobytes_per_second)
{
    DEVICE_CALL(nvmlDeviceGetPcieThroughput)
    if (counter >= NVML_PCIE_UTIL_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    GIVE(counter == NVML_PCIE_UTIL_TX_BYTES ? call.gpu.pcie_tx_kilobytes_per_second
                                            : call.gpu.pcie_rx_kilobytes_per_second,
         kilobytes_per_second);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    DEVICE_CALL(nvmlDeviceGetMigMode)
    GIVE(call.gpu.mig_current, current);
    GIVE(call.gpu.mig_pending, pending);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_instance)
{
    DEVICE_CALL(nvmlDeviceIsMigDeviceHandle)
    GIVE(call.gpu.parent >= 0, is_instance);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *number)
{
    DEVICE_CALL(nvmlDeviceGetMaxMigDeviceCount)
    GIVE(call.gpu.mig_current == UNSET ? 0 : 7, number);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance)
{
    DEVICE_CALL(nvmlDeviceGetMigDeviceHandleByIndex)
    int parent = call.slot;
    if (instance == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int slot = (int)call.node.gpu_count; look_at(&call, slot); slot++) {
        if (call.gpu.parent == parent && index-- == 0) {
            *instance = handle_of(slot);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    DEVICE_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)
    if (parent == NULL || call.gpu.parent < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *parent = handle_of(call.gpu.parent);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    DEVICE_CALL(nvmlDeviceGetAttributes_v2)
    if (attributes == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(attributes, 0, sizeof *attributes);
    GIVE(call.gpu.slices, &attributes->gpuInstanceSliceCount);
    GIVE(call.gpu.slices, &attributes->computeInstanceSliceCount);
    GIVE(call.gpu.memory_total, &attributes->memorySizeMB);
    attributes->memorySizeMB >>= 20;
    return NVML_SUCCESS;
}
