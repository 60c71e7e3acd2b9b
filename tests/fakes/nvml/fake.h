/* What the library's files share: one call's view of the node, and the way into every function. */
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "layout.h"

enum function {
#define FUNCTION(name, since) FN_##name,
#include "functions.def"
#undef FUNCTION
    FUNCTIONS
};

enum action { ACT_FAIL, ACT_HANG, ACT_HANG_HOLDING_THE_LOCK };
enum sample_mode { SAMPLES_COMPUTED, SAMPLES_EMPTY_SUCCESS, SAMPLES_SAY_100, SAMPLES_LITERAL };
enum list { LIST_COMPUTE = 1, LIST_GRAPHICS = 2, LIST_MPS = 4 };

#define NO_GPU (-1)

/* A GPU's handle points into a table of these: its place is the GPU's slot in the state. */
struct nvmlDevice_st {
    char occupied;
};

/* The node (and one of its GPUs) as it was at one instant. */
struct call {
    int slot;
    struct NodeState node;
    struct GpuState gpu;
};

/* Counts the call, and obeys what Python wants of it: an error, a hang, a cost. */
nvmlReturn_t enter(struct call *call, enum function function, int slot);
nvmlReturn_t enter_device(struct call *call, enum function function, nvmlDevice_t device);

/* Looks at another GPU within a call; answers whether there is one. */
int look_at(struct call *call, int slot);

/* Of what MIG has cut, and of its instances, no utilization is known. */
static inline int is_cut(const struct GpuState *gpu)
{
    return gpu->parent >= 0 || gpu->mig_current == NVML_DEVICE_MIG_ENABLE;
}

nvmlDevice_t handle_of(int slot);
nvmlReturn_t give_text(const char *text, char *out, unsigned int length);

#define NODE_CALL(function, slot)                                                                  \
    struct call call;                                                                              \
    nvmlReturn_t entered = enter(&call, FN_##function, slot);                                      \
    if (entered != NVML_SUCCESS)                                                                   \
        return entered;

#define DEVICE_CALL(function)                                                                      \
    struct call call;                                                                              \
    nvmlReturn_t entered = enter_device(&call, FN_##function, device);                             \
    if (entered != NVML_SUCCESS)                                                                   \
        return entered;

#define GIVE(scalar, out)                                                                          \
    do {                                                                                           \
        if ((out) == NULL)                                                                         \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        int64_t given = (int64_t)(scalar);                                                         \
        if (given == UNSET)                                                                        \
            return NVML_ERROR_NOT_SUPPORTED;                                                       \
        *(out) = (__typeof__(*(out)))given;                                                        \
    } while (0)
