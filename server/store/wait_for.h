// server/store/wait_for.h: waits for the result of a change that calls a callback.
#pragma once

#include <future>
#include <tuple>
#include <utility>

#include "server/store/done.h"
#include "src/base/check.h"

namespace trainyard::server {

/// Marks the calling thread as the store's answering thread.
void note_answering_thread();
bool is_answering_thread();

/// Calls `start(Done<T>)` and waits until the callback was called. Must not run on the store's
/// answering thread, which would wait for itself.
template <typename T, typename Start>
Result<T> wait_for(Start start) {
  TRAINYARD_CHECK(!is_answering_thread(), "an answer of the store must not wait for the store");
  std::promise<Result<T>> promise;
  std::future<Result<T>> future = promise.get_future();
  start(Done<T>([&promise](Result<T> result) { promise.set_value(std::move(result)); }));
  return future.get();
}

namespace detail {
template <typename Callback>
struct AnswerOf;
template <typename T>
struct AnswerOf<std::function<void(Result<T>)>> {
  using Type = T;
};
}  // namespace detail

/// Starts a change and waits for its result: answer_of(store.jobs(), &JobStore::set_nonce, uid,
/// attempt, digest).
template <typename Part, typename... Parameters, typename... Arguments>
auto answer_of(Part& part, void (Part::*change)(Parameters...), Arguments&&... arguments) {
  using Callback = std::tuple_element_t<sizeof...(Parameters) - 1, std::tuple<Parameters...>>;
  using T = typename detail::AnswerOf<Callback>::Type;
  return wait_for<T>([&](Done<T> done) {
    (part.*change)(std::forward<Arguments>(arguments)..., std::move(done));
  });
}

}  // namespace trainyard::server
