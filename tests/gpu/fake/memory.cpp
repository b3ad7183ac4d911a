// Memory of the devices and pinned memory of the host (both are the host's here), and copies between them.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "world.h"

static constexpr double COPY_S = 2e-6;        // that the smallest copy takes
static constexpr double LOCAL_RATE = 1500e9;  // bytes a second within a device

static Block* block_of(const void* place) {
  auto& memory = world().memory;
  auto next = memory.upper_bound((uintptr_t)place);
  if (next == memory.begin()) return nullptr;
  auto& [begin, block] = *--next;
  return (uintptr_t)place < begin + block.bytes ? &block : nullptr;
}

static void* mapped(size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static size_t whole_pages(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }

static void unmapped(void* place) {
  auto found = world().memory.find((uintptr_t)place);
  if (found == world().memory.end()) return;
  if (found->second.kind == Kind::device) world().devices[found->second.device].taken -= found->second.bytes;
  munmap(place, found->second.bytes);
  world().memory.erase(found);
}

static cudaError_t copy(Entered& entered, void* to, const void* from, size_t bytes, Stream* stream, bool waits) {
  auto& all = world();
  Block *target = block_of(to), *source = block_of(from);
  bool into = target && target->kind == Kind::device, out_of = source && source->kind == Kind::device;
  auto move = [=] { memmove(to, from, bytes); };
  if (!into && !out_of) {
    wait(entered, stream);
    move();
  } else if (into && out_of) {
    queue(entered, stream, bytes / LOCAL_RATE + COPY_S, move);
  } else if (into && source) {
    queue(entered, stream, bytes / all.pinned_rate + COPY_S, move);
  } else if (into) {  // ordinary memory is read before the call returns
    auto kept = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
    queue(entered, stream, bytes / all.pageable_rate + COPY_S, [=] { memcpy(to, kept->data(), bytes); });
    if (!all.race && bytes > 65536) entered.sleep_until(stream->free_at);
  } else {
    queue(entered, stream, bytes / (target ? all.pinned_rate : all.pageable_rate) + COPY_S, move);
    waits = waits || !target;
  }
  if (waits) wait(entered, stream);
  return cudaSuccess;
}

#define ENTER \
  Entered entered; \
  if (auto error = awake()) return error

extern "C" {
cudaError_t cudaMalloc(void** place, size_t bytes) {
  ENTER;
  auto& device = world().devices[current()];
  bytes = whole_pages(bytes);
  *place = nullptr;
  if (device.taken + bytes > world().bytes_each) return failed(cudaErrorMemoryAllocation);
  *place = mapped(bytes);
  device.taken += bytes;
  world().memory[(uintptr_t)*place] = {bytes, Kind::device, current()};
  return cudaSuccess;
}
cudaError_t cudaFree(void* place) {
  Entered entered;
  for (auto* stream : world().streams) wait(entered, stream);
  unmapped(place);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** place, size_t bytes, unsigned) {
  ENTER;
  bytes = whole_pages(bytes);
  *place = mapped(bytes);
  world().memory[(uintptr_t)*place] = {bytes, Kind::pinned, current()};
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** place, size_t bytes) { return cudaHostAlloc(place, bytes, 0); }
cudaError_t cudaFreeHost(void* place) {
  Entered entered;
  unmapped(place);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* place, size_t bytes, unsigned) {
  ENTER;
  world().memory[(uintptr_t)place] = {bytes, Kind::pinned, current()};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* place) {
  Entered entered;
  world().memory.erase((uintptr_t)place);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER;
  *total = world().bytes_each;
  *free = *total - world().devices[current()].taken;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* told, const void* place) {
  ENTER;
  memset(told, 0, sizeof *told);
  Block* block = block_of(place);
  told->device = block ? block->device : -2;
  told->type = !block ? cudaMemoryTypeUnregistered : block->kind == Kind::device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  if (block) told->devicePointer = (void*)place;
  if (block && block->kind == Kind::pinned) told->hostPointer = (void*)place;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  ENTER;
  return copy(entered, to, from, bytes, world().devices[current()].standard, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  ENTER;
  return copy(entered, to, from, bytes, stream_of(stream), false);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  ENTER;
  return copy(entered, to, from, bytes, stream_of(stream), false);
}
cudaError_t cudaMemsetAsync(void* place, int value, size_t bytes, cudaStream_t stream) {
  ENTER;
  queue(entered, stream_of(stream), bytes / LOCAL_RATE, [=] { memset(place, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* place, int value, size_t bytes) { return cudaMemsetAsync(place, value, bytes, nullptr); }
}
