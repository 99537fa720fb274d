#include "src/runtime/cuda/nccl_connection.h"

#include <atomic>
#include <chrono>
#include <cstdint>

#include "src/base/mutex.h"
#include "src/runtime/communicator.h"

namespace trainyard::cuda {
namespace {

// An abort frees the communicator, so it first waits this long for calls that are being made. Calls
// that take longer wait for other ranks, and only the abort makes them return.
constexpr std::chrono::seconds kCallMax{1};
// NCCL usually needs less than a second to end its threads and free its memory.
constexpr std::chrono::seconds kEndMax{5};

}  // namespace

struct NcclConnection::State {
  State(const Nccl& library, ncclComm_t communicator, bool calls_block)
      : nccl(library), comm(communicator), blocks(calls_block) {}
  const Nccl& nccl;
  const ncclComm_t comm;
  const bool blocks;
  Mutex mutex;  // never held during a call of NCCL
  CondVar changed;
  int64_t uses TRAINYARD_GUARDED_BY(mutex) = 0;
  std::atomic<bool> aborted = false;

  /// Makes the calls of a use that was counted before, and counts it as ended.
  void make(const std::function<void()>& calls) {
    struct End {
      State& state;
      ~End() {
        const MutexLock lock(state.mutex);
        --state.uses;
        state.changed.notify_all();
      }
    };
    const End end{*this};
    calls();
  }
};

NcclConnection::NcclConnection(const Nccl& nccl, ncclComm_t comm, bool blocks)
    : state_(std::make_shared<State>(nccl, comm, blocks)) {}

NcclConnection::~NcclConnection() {
  if (!state_->aborted) {
    end_.emplace([state = state_] { (void)state->nccl.comm_destroy(state->comm); });
  }
  (void)end_->wait_until(std::chrono::steady_clock::now() + kEndMax);
}

const Nccl& NcclConnection::nccl() const { return state_->nccl; }
ncclComm_t NcclConnection::comm() const { return state_->comm; }
bool NcclConnection::blocks() const { return state_->blocks; }

void NcclConnection::check_not_aborted() const {
  if (state_->aborted) throw ExchangeAborted("another device has stopped");
}

void NcclConnection::use(const std::function<void()>& calls) const {
  State& state = *state_;
  {
    MutexLock lock(state.mutex);
    state.changed.wait(lock, [&]() TRAINYARD_REQUIRES(state.mutex) {
      return state.aborted || state.blocks || state.uses == 0;
    });
    check_not_aborted();
    ++state.uses;
  }
  state.make(calls);
}

bool NcclConnection::use_if_free(const std::function<void()>& calls) const {
  State& state = *state_;
  {
    const MutexLock lock(state.mutex);
    if (state.aborted || (!state.blocks && state.uses > 0)) return false;
    ++state.uses;
  }
  state.make(calls);
  return true;
}

void NcclConnection::abort() noexcept {
  {
    const MutexLock lock(state_->mutex);
    if (state_->aborted.exchange(true)) return;
    state_->changed.notify_all();
  }
  end_.emplace([state = state_] {
    {
      MutexLock lock(state->mutex);
      state->changed.wait_for(lock, kCallMax,
                              [&]() TRAINYARD_REQUIRES(state->mutex) { return state->uses == 0; });
    }
    (void)state->nccl.comm_abort(state->comm);
  });
}

}  // namespace trainyard::cuda
