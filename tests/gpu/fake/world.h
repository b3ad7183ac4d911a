// What the stand-in for a CUDA device knows: devices, streams with the work queued on them, events, and memory.
//
// clock: each piece of work gets a place on its stream's time line when it is queued; its data move at once.
// race:  data move as late as streams and events allow on the streams that lag, and at once on the others.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct Stream;

// A place in a stream that an event marks: reached once the work before it is done.
struct Mark {
  Stream* stream = nullptr;
  double at = 0;      // clock
  bool done = false;  // race
};
using MarkPtr = std::shared_ptr<Mark>;

struct Work {
  std::function<void()> run;
  MarkPtr reaches;
  MarkPtr waits_for;
};

struct Stream {
  int device;
  bool standard;             // the device's default stream
  double free_at = 0;        // clock: when the work queued so far will be done
  std::deque<double> ends;   // clock: of work that is not done yet
  std::deque<Work> waiting;  // race
};

struct Event {
  MarkPtr mark;  // of its latest record
};

enum class Kind { device, pinned };

struct Block {
  size_t bytes;
  Kind kind;
  int device;
};

struct Device {
  Stream* standard;
  size_t taken = 0;
  cudaError_t broken = cudaSuccess;  // what every call answers once an assertion has failed in a kernel
  double breaks_at = 0;
};

struct World {
  bool race;
  std::string lag;  // default: the default streams lag; side: all others do; none
  size_t bytes_each;
  double pinned_rate, pageable_rate;  // bytes a second
  std::vector<Device> devices;
  std::vector<Stream*> streams;
  std::map<uintptr_t, Block> memory;
  long waits = 0;             // how often the host waited for the device
  cudaError_t next_launch = cudaSuccess;
};

World& world();    // made, by the settings of the environment, when it is first asked for
extern int owner;  // the process that used the driver first; 0: none has
double now();

// The one lock. Who waits for the device gives it back meanwhile.
class Entered {
 public:
  Entered();
  void sleep_until(double moment);

 private:
  std::unique_lock<std::mutex> lock_;
};

int current();
cudaError_t failed(cudaError_t error);  // remembered for cudaGetLastError
cudaError_t awake();                    // what a call answers before it does anything: not after a fork, not on a broken device

Stream* stream_of(cudaStream_t handle);
// Queue work that takes so many seconds (clock); fewer than 0: no place of its own.
void queue(Entered& entered, Stream* stream, double seconds, std::function<void()> run, MarkPtr reaches = nullptr,
           MarkPtr waits_for = nullptr);
void wait(Entered& entered, Stream* stream);
void wait(Entered& entered, const MarkPtr& mark);
bool reached(const MarkPtr& mark);
bool idle(Stream* stream);
