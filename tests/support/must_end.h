// tests/support/must_end.h: calls that might wait forever if what is tested is wrong.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>

#include "tests/support/patience.h"

namespace trainyard {

/// Calls `work` on another thread and waits for it. If it has not returned after patience(), the
/// test program ends with a failure, since a thread that waits cannot be ended. `what` names the
/// work.
inline void must_end(const char* what, const std::function<void()>& work) {
  std::promise<void> done;
  std::future<void> ended = done.get_future();
  std::thread thread([&] {
    work();
    done.set_value();
  });
  if (ended.wait_for(patience()) != std::future_status::ready) {
    std::fprintf(stderr, "%s still waits after %lld s\n", what,
                 static_cast<long long>(patience().count()));
    std::_Exit(1);
  }
  thread.join();
}

}  // namespace trainyard
