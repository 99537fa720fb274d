// src/runtime/cuda/nccl_connection.h: owns a communicator of NCCL: who may call it, and how it
// ends.
//
// ncclCommAbort first makes all kernels and calls return that wait for other ranks. Then, as
// ncclCommDestroy does immediately, it waits without a limit: for the work on the GPU, and until
// every CUDA graph that captured a call on the communicator has been destroyed (commDestroySync()
// in NCCL 2.28). So both are detached calls, and nothing here waits longer than a few seconds.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "src/base/detached_call.h"
#include "src/runtime/cuda/nccl.h"

namespace trainyard::cuda {

class NcclConnection {
 public:
  /// Takes ownership of `comm`. `blocks`: calls on it may wait for other ranks. Otherwise they only
  /// submit work, and one thread at a time makes them.
  NcclConnection(const Nccl& nccl, ncclComm_t comm, bool blocks);
  /// Destroys the communicator, unless it was aborted, and gives NCCL a few seconds for either.
  /// Recordings with its exchanges must have been destroyed, or NCCL's work goes on after that.
  ~NcclConnection();
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  const Nccl& nccl() const;
  /// Only for calls within use() and use_if_free().
  ncclComm_t comm() const;
  bool blocks() const;

  /// Makes calls on the communicator, while abort() keeps it alive. Throws ExchangeAborted if it
  /// was aborted before.
  void use(const std::function<void()>& calls) const;
  /// The same for the thread that watches, which must not wait for a rank's call: returns false,
  /// without a call, if the communicator was aborted, or does not block and is in use.
  bool use_if_free(const std::function<void()>& calls) const;
  /// Throws ExchangeAborted after abort().
  void check_not_aborted() const;

  /// Makes later uses throw, and everything return that waits for other ranks. Does not wait
  /// itself.
  void abort() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;     // the detached call uses it after the destructor
  std::optional<DetachedCall> end_;  // ncclCommAbort or ncclCommDestroy
};

}  // namespace trainyard::cuda
