/* A stand-in for libnvidia-ml.so.1 with the GPUs that NVML_* variables describe. Types and codes as in NVIDIA's nvml.h.
   With -DOLD it is of a driver that lacks what came later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { GPU_IS_LOST = 15, RESET_REQUIRED = 16 };

typedef struct { int index; } *device;
typedef struct {
  char bus_legacy[16];
  unsigned domain, bus, device, device_id, subsystem;
  char bus_id[32];
} pci_info;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process_info;

static struct { int index; } devices[16];

static int said(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

/* What every call for a GPU's values begins with. */
static int state(device gpu) { return gpu->index == said("NVML_RESET", -1) ? RESET_REQUIRED : SUCCESS; }

static int one(device gpu, unsigned *out, const char *name) {
  int value = said(name, -1);
  if (value < 0) return NOT_SUPPORTED;
  *out = value;
  return state(gpu);
}

int nvmlInitWithFlags(unsigned flags) {
  if (getenv("NVML_HANGS")) pause();
  return said("NVML_INIT", SUCCESS);
}
const char *nvmlErrorString(int code) { return "as the library says it"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = said("NVML_GPUS", 2); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *gpu) {
  if ((int)index == said("NVML_LOST", -1)) return GPU_IS_LOST;
  if ((int)index == said("NVML_HIDDEN", -1)) return said("NVML_HIDDEN_BY", NO_PERMISSION);
  devices[index].index = index;
  *gpu = (device)&devices[index];
  return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(device gpu, pci_info *out) {
  memset(out, 0, sizeof *out);
  out->bus = 0x1A + gpu->index;
  snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
  return SUCCESS;
}
int nvmlDeviceGetTemperature(device gpu, unsigned sensor, unsigned *out) { *out = 40; return state(gpu); }

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory_info;
int nvmlDeviceGetUtilizationRates(device gpu, utilization *out) { return one(gpu, &out->gpu, "NVML_USED"); }
int nvmlDeviceGetPowerUsage(device gpu, unsigned *out) { return one(gpu, out, "NVML_MILLIWATTS"); }
int nvmlDeviceGetClockInfo(device gpu, unsigned type, unsigned *out) {
  return type == 1 ? one(gpu, out, "NVML_SM_MHZ") : INVALID_ARGUMENT;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device gpu, unsigned long long *out) {
  *out = said("NVML_THROTTLE", 0);
  return state(gpu);
}
int nvmlDeviceGetMemoryInfo(device gpu, memory_info *out) {
  out->total = 80ULL << 30;
  out->used = (unsigned long long)said("NVML_GIB", 0) << 30;
  return state(gpu);
}

int nvmlDeviceGetEccMode(device gpu, unsigned *current, unsigned *pending) {
  *pending = 1;
  return one(gpu, current, "NVML_ECC");
}
int nvmlDeviceGetTotalEccErrors(device gpu, unsigned type, unsigned counter, unsigned long long *out) {
  unsigned value = 0;
  int code = type == 1 ? one(gpu, &value, counter ? "NVML_AGGREGATE" : "NVML_VOLATILE") : INVALID_ARGUMENT;
  *out = value;
  return code;
}
int nvmlDeviceGetRetiredPagesPendingStatus(device gpu, unsigned *out) { return one(gpu, out, "NVML_PAGES"); }

int nvmlDeviceGetNvLinkState(device gpu, unsigned link, unsigned *up) {
  if ((int)link >= said("NVML_LINKS", 0)) return INVALID_ARGUMENT;
  *up = (int)link != said("NVML_LINK_DOWN", -1);
  return state(gpu);
}
int nvmlDeviceGetNvLinkErrorCounter(device gpu, unsigned link, unsigned counter, unsigned long long *out) {
  static const char *names[] = {"NVML_REPLAY", "NVML_RECOVERY", "NVML_CRC"};
  unsigned value = 0;
  int code = counter < 3 ? one(gpu, &value, names[counter]) : INVALID_ARGUMENT;
  *out = value;
  return code;
}
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
  if (getenv("NVML_NAMELESS")) return NOT_FOUND;
  snprintf(name, size, "/usr/bin/memhog");
  return SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetRemappedRows(device gpu, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failure) {
  *correctable = 3, *uncorrectable = 4;
  int code = one(gpu, pending, "NVML_PENDING");
  return code ? code : one(gpu, failure, "NVML_FAILURE");
}
int nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *count, process_info *out) {
  int pid = gpu->index == 1 ? said("NVML_PID", 0) : 0;
  unsigned room = *count;
  *count = pid ? 1 : 0;
  if (state(gpu) || !pid) return state(gpu);
  if (!room || !out) return INSUFFICIENT_SIZE;
  memset(out, 0, sizeof *out);
  out->pid = pid;
  return SUCCESS;
}
#endif
