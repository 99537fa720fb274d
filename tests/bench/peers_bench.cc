// Measures exchanges between processes: a mean over all of them, for several sizes, compared with
// the same exchange over threads of one process. The processes are threads here that are connected
// as processes are, over loopback, so they share the machine's cores.
//
//   peers_bench [ranks=4] [rounds=9]
//
// Times are medians over the rounds; one line for each size.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/runtime/host/peer_communicator.h"
#include "src/runtime/host/thread_communicator.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

void on_each(int64_t ranks, const std::function<void(int64_t)>& work) {
  std::vector<std::jthread> threads;
  for (int64_t r = 0; r < ranks; ++r) threads.emplace_back([&work, r] { work(r); });
}

std::vector<std::unique_ptr<HostCommunicator>> over_processes(int64_t ranks) {
  std::vector<PeerListener> listeners;
  std::vector<PeerEndpoint> endpoints;
  for (int64_t r = 0; r < ranks; ++r) {
    listeners.push_back(PeerListener::open("127.0.0.1").value());
    endpoints.push_back(listeners.back().endpoint());
  }
  std::vector<std::unique_ptr<HostCommunicator>> all(static_cast<size_t>(ranks));
  on_each(ranks, [&](int64_t r) {
    const auto at = static_cast<size_t>(r);
    auto peers =
        Peers::connect(std::move(listeners[at]), {r, ranks, std::string(32, 'k')}, endpoints);
    all[at] = std::move(PeerCommunicator::make(1, std::move(peers).value()).front());
  });
  return all;
}

std::vector<std::unique_ptr<HostCommunicator>> over_threads(int64_t ranks) {
  std::vector<std::unique_ptr<HostCommunicator>> all;
  for (auto& one : ThreadCommunicator::make(static_cast<size_t>(ranks)))
    all.push_back(std::move(one));
  return all;
}

double median_ms(const std::vector<std::unique_ptr<HostCommunicator>>& all, int64_t elements,
                 int64_t rounds) {
  std::vector<double> ms(static_cast<size_t>(rounds));
  on_each(std::ssize(all), [&](int64_t r) {
    std::vector<float> data(static_cast<size_t>(elements), 0.5f);
    const std::vector<ExchangePart> parts{{data.data(), elements, DType::kF32}};
    HostCommunicator& mine = *all[static_cast<size_t>(r)];
    mine.plan(Exchange::kAllReduce, parts);
    mine.run(Exchange::kAllReduce, parts);
    for (double& took : ms) {
      const Steady::time_point begin = Steady::now();
      mine.run(Exchange::kAllReduce, parts);
      if (r == 0) took = std::chrono::duration<double, std::milli>(Steady::now() - begin).count();
    }
  });
  std::ranges::sort(ms);
  return ms[ms.size() / 2];
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  using namespace trainyard;
  const int64_t ranks = argc > 1 ? std::atoll(argv[1]) : 4;
  const int64_t rounds = argc > 2 ? std::atoll(argv[2]) : 9;
  const auto processes = over_processes(ranks);
  const auto threads = over_threads(ranks);
  std::printf("%12s %14s %14s   (%lld ranks)\n", "bytes", "processes ms", "threads ms",
              static_cast<long long>(ranks));
  for (const int64_t bytes : {int64_t{4} << 10, int64_t{1} << 20, int64_t{25} << 20}) {
    std::printf("%12lld %14.3f %14.3f\n", static_cast<long long>(bytes),
                median_ms(processes, bytes / 4, rounds), median_ms(threads, bytes / 4, rounds));
  }
  return 0;
}
