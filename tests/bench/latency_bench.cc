// Measures the time from a submit to the end of the first training step, as a client sees it: the
// clock starts before SubmitJob is called and stops when the watcher receives the first train/loss.
// Run by tests/bench/service_bench.py, which starts the daemon and uploads the digits.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainyard/v1/job_service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace trainyard::v1;  // NOLINT: a small program about these messages

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

SubmitJobRequest request_for(const std::string& dataset) {
  SubmitJobRequest request;
  JobSpec* spec = request.mutable_spec();
  spec->mutable_dataset()->set_name(dataset);
  spec->mutable_model()->mutable_mlp()->add_hidden(64);
  spec->mutable_recipe()->set_steps(50);
  spec->mutable_recipe()->set_batch_size(64);
  spec->mutable_recipe()->mutable_optimizer()->set_learning_rate(0.1);
  return request;
}

struct Sample {
  double acknowledged_ms, first_step_ms, finished_ms;
};

Sample run_once(JobService::Stub& stub, const std::string& dataset) {
  Sample sample{};
  const auto start = Clock::now();
  Job job;
  {
    grpc::ClientContext context;
    const grpc::Status s = stub.SubmitJob(&context, request_for(dataset), &job);
    if (!s.ok()) {
      std::fprintf(stderr, "submit: %s\n", s.error_message().c_str());
      std::exit(1);
    }
  }
  sample.acknowledged_ms = ms_since(start);
  grpc::ClientContext context;
  WatchJobRequest watch;
  watch.set_name(job.name());
  const auto reader = stub.WatchJob(&context, watch);
  WatchJobResponse response;
  while (reader->Read(&response)) {
    if (sample.first_step_ms > 0) continue;
    for (const Event& event : response.events()) {
      for (const MetricSeries& series : event.metrics().series()) {
        if (series.key() == "train/loss") sample.first_step_ms = ms_since(start);
      }
    }
  }
  const grpc::Status s = reader->Finish();
  if (!s.ok() || sample.first_step_ms == 0) {
    std::fprintf(stderr, "watch: %s\n", s.ok() ? "no train/loss came" : s.error_message().c_str());
    std::exit(1);
  }
  sample.finished_ms = ms_since(start);
  return sample;
}

void print_row(const char* what, std::vector<Sample> samples, double Sample::*field) {
  std::sort(samples.begin(), samples.end(),
            [field](const Sample& a, const Sample& b) { return a.*field < b.*field; });
  const auto at = [&](double q) {
    return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1))].*field;
  };
  std::printf("%-34s p50 %7.1f ms   p90 %7.1f ms   worst %7.1f ms\n", what, at(0.5), at(0.9),
              at(1.0));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: latency_bench SERVER DATASET RUNS\n");
    return 2;
  }
  const auto stub =
      JobService::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  const int runs = std::max(1, std::atoi(argv[3]));
  run_once(*stub, argv[2]);  // warms the daemon and the page cache
  std::vector<Sample> samples;
  for (int i = 0; i < runs; ++i) samples.push_back(run_once(*stub, argv[2]));
  std::printf("MLP 64-64-10 on digits, CPU, warm daemon, %d jobs one after another\n", runs);
  print_row("submit acknowledged (durable)", samples, &Sample::acknowledged_ms);
  print_row("submit -> first step seen", samples, &Sample::first_step_ms);
  print_row("submit -> succeeded (50 steps)", samples, &Sample::finished_ms);
  return 0;
}
