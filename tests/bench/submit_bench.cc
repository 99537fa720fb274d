// Measures durable submits per second over gRPC, against a running daemon:
//   submit_bench unix:/path/trainyard.sock DATASET [callers=32] [seconds=5]
// The daemon's queued_jobs_max limits the number of submits, so it should be raised.
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "trainyard/v1/job_service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace v1 = trainyard::v1;

v1::SubmitJobRequest make_request(const std::string& dataset) {
  v1::SubmitJobRequest request;
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_dataset()->set_name(dataset);
  spec.mutable_model()->mutable_mlp()->add_hidden(32);
  spec.mutable_recipe()->set_epochs(1);
  spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.1);
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: submit_bench SERVER DATASET [callers] [seconds]\n");
    return 2;
  }
  const int callers = argc > 3 ? std::stoi(argv[3]) : 32;
  const int seconds = argc > 4 ? std::stoi(argv[4]) : 5;
  const auto channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  const auto stub = v1::JobService::NewStub(channel);
  const v1::SubmitJobRequest request = make_request(argv[2]);

  std::atomic<int> failures{0};
  std::vector<std::vector<double>> micros(static_cast<size_t>(callers));
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  std::vector<std::thread> threads;
  for (int c = 0; c < callers; ++c) {
    threads.emplace_back([&, c] {
      while (Clock::now() < end) {
        grpc::ClientContext context;
        v1::Job job;
        const auto begin = Clock::now();
        const grpc::Status s = stub->SubmitJob(&context, request, &job);
        if (!s.ok()) {
          if (failures.fetch_add(1) == 0) std::fprintf(stderr, "%s\n", s.error_message().c_str());
          return;
        }
        micros[static_cast<size_t>(c)].push_back(
            std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<double> all;
  for (const auto& m : micros) all.insert(all.end(), m.begin(), m.end());
  if (all.empty()) return 1;
  std::sort(all.begin(), all.end());
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const double cpu_us = 1e6 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                        static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  std::printf(
      "%d callers: %.0f durable submits/s, p50 %.0f us, p99 %.0f us, most %.0f us, %d failed, "
      "callers' CPU %.0f us each\n",
      callers, static_cast<double>(all.size()) / seconds, all[all.size() / 2],
      all[all.size() * 99 / 100], all.back(), failures.load(),
      cpu_us / static_cast<double>(all.size()));
  return 0;
}
