// How work moves on: by the clock, or as late as it may.
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

#include "world.h"

static constexpr size_t DEPTH = 1024;  // pieces of work that a stream holds before a launch waits

static std::mutex& the_lock() {
  static auto* lock = new std::mutex;  // never destroyed: torch calls at exit
  return *lock;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

Entered::Entered() : lock_(the_lock()) {}

void Entered::sleep_until(double moment) {
  lock_.unlock();
  double left = moment - now();
  if (left > 0) {
    timespec span{(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&span, nullptr);
  }
  lock_.lock();
}

static double setting(const char* name, double otherwise) {
  const char* value = getenv(name);
  return value ? atof(value) : otherwise;
}

static World* made() {
  auto* it = new World;
  const char *mode = getenv("FAKE_MODE"), *lag = getenv("FAKE_LAG");
  it->race = mode && std::string(mode) == "race";
  it->lag = lag ? lag : "default";
  it->bytes_each = (size_t)(setting("FAKE_GIB", 80) * (double)(1ull << 30));
  it->pinned_rate = setting("FAKE_PINNED_GBS", 25) * 1e9;
  it->pageable_rate = setting("FAKE_PAGEABLE_GBS", 6) * 1e9;
  int devices = (int)setting("FAKE_DEVICES", 1);
  for (int device = 0; device < devices; device++) {
    auto* stream = new Stream{device, true};
    it->streams.push_back(stream);
    it->devices.push_back({stream});
  }
  return it;
}

World& world() {
  static World* it = made();
  return *it;
}

// -- race

static bool lags(Stream* stream) {
  const auto& lag = world().lag;
  return lag == "default" ? stream->standard : lag == "side" && !stream->standard;
}

static void run_to(Stream* stream, const Mark* last);

static void run_one(Stream* stream) {
  Work work = std::move(stream->waiting.front());
  stream->waiting.pop_front();
  if (work.waits_for && !work.waits_for->done) run_to(work.waits_for->stream, work.waits_for.get());
  if (work.run) work.run();
  if (work.reaches) work.reaches->done = true;
}

static void run_to(Stream* stream, const Mark* last) {
  while (!stream->waiting.empty() && !(last && last->done)) run_one(stream);
}

// A stream that does not lag runs until it would have to wait for one that does.
static void run_prompt_ones() {
  for (auto* stream : world().streams) {
    while (!lags(stream) && !stream->waiting.empty()) {
      const auto& mark = stream->waiting.front().waits_for;
      if (mark && !mark->done && lags(mark->stream)) break;
      run_one(stream);
    }
  }
}

// -- both

void queue(Entered& entered, Stream* stream, double seconds, std::function<void()> run, MarkPtr reaches, MarkPtr waits_for) {
  auto& all = world();
  double moment = now();
  if (waits_for && waits_for->at > stream->free_at) stream->free_at = waits_for->at;
  double begins = stream->free_at > moment ? stream->free_at : moment;
  if (seconds >= 0) stream->free_at = begins + seconds;
  if (reaches) {
    reaches->stream = stream;
    reaches->at = begins;
  }
  if (all.race) {
    stream->waiting.push_back({std::move(run), reaches, waits_for});
    run_prompt_ones();
    return;
  }
  if (run) run();
  while (!stream->ends.empty() && stream->ends.front() <= moment) stream->ends.pop_front();
  if (stream->ends.size() >= DEPTH) {
    double until = stream->ends.front();
    stream->ends.pop_front();
    entered.sleep_until(until);
  }
  stream->ends.push_back(stream->free_at);
}

void wait(Entered& entered, Stream* stream) {
  world().waits++;
  if (world().race) {
    run_to(stream, nullptr);
    run_prompt_ones();
  } else {
    entered.sleep_until(stream->free_at);
  }
}

void wait(Entered& entered, const MarkPtr& mark) {
  world().waits++;
  if (world().race) {
    if (!mark->done) run_to(mark->stream, mark.get());
    run_prompt_ones();
  } else {
    entered.sleep_until(mark->at);
  }
}

bool reached(const MarkPtr& mark) { return world().race ? mark->done : mark->at <= now(); }

bool idle(Stream* stream) { return world().race ? stream->waiting.empty() : stream->free_at <= now(); }

// -- processes

static thread_local int the_current = 0;
static thread_local cudaError_t the_last = cudaSuccess;

int current() { return the_current; }

cudaError_t failed(cudaError_t error) { return the_last = error; }

int owner = 0;

// A process that was forked after the driver woke up cannot use it.
cudaError_t awake() {
  auto& all = world();
  if (!owner) owner = getpid();
  if (owner != getpid()) return failed(cudaErrorInitializationError);
  if (all.devices.empty()) return failed(cudaErrorNoDevice);
  const auto& device = all.devices[the_current];
  return device.broken && (all.race || now() >= device.breaks_at) ? failed(device.broken) : cudaSuccess;
}

Stream* stream_of(cudaStream_t handle) {
  return (uintptr_t)handle <= 2 ? world().devices[the_current].standard : (Stream*)handle;
}

extern "C" {
cudaError_t cudaGetDevice(int* device) {
  if (owner && owner != getpid()) return failed(cudaErrorInitializationError);
  return *device = the_current, cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  Entered entered;
  if (auto error = awake(); error == cudaErrorInitializationError) return error;
  if (device < 0 || (size_t)device >= world().devices.size()) return failed(cudaErrorInvalidDevice);
  return the_current = device, cudaSuccess;
}
cudaError_t cudaGetLastError() {
  auto error = the_last;
  the_last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return the_last; }
}

static void before_fork() { the_lock().lock(); }
static void after_fork() { the_lock().unlock(); }
__attribute__((constructor)) static void begin() { pthread_atfork(before_fork, after_fork, after_fork); }
