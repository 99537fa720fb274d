// Measures the time of listing jobs, against a running daemon:
//   list_bench unix:/path/trainyard.sock [calls=200] [STATE ...]
// Without a state: jobs in any state. Each call requests the first page of 50; the calls end early
// after five seconds. With 0 calls, all pages of 1000 are read once.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "trainyard/v1/job_service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace v1 = trainyard::v1;

constexpr double kMeasureMs = 5000;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

bool list(v1::JobService::Stub& stub, const v1::ListJobsRequest& request,
          v1::ListJobsResponse& response) {
  grpc::ClientContext context;
  const grpc::Status s = stub.ListJobs(&context, request, &response);
  if (!s.ok()) std::fprintf(stderr, "%s\n", s.error_message().c_str());
  return s.ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: list_bench SERVER [calls] [STATE ...]\n");
    return 2;
  }
  const int calls = argc > 2 ? std::stoi(argv[2]) : 200;
  const auto stub =
      v1::JobService::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  v1::ListJobsRequest request;
  for (int i = 3; i < argc; ++i) {
    v1::JobState state;
    if (!v1::JobState_Parse(argv[i], &state)) {
      std::fprintf(stderr, "%s is not a state\n", argv[i]);
      return 2;
    }
    request.add_states(state);
  }
  v1::ListJobsResponse response;
  if (calls == 0) {
    request.set_page_size(1000);
    const auto begin = Clock::now();
    int64_t count = 0;
    do {
      if (!list(*stub, request, response)) return 1;
      count += response.jobs_size();
      request.set_page_token(response.next_page_token());
    } while (!response.next_page_token().empty());
    std::printf("all %lld jobs in %.0f ms\n", static_cast<long long>(count), ms_since(begin));
    return 0;
  }
  std::vector<double> ms;
  const auto first = Clock::now();
  for (int i = 0; i < calls && (i < 5 || ms_since(first) < kMeasureMs); ++i) {
    const auto begin = Clock::now();
    if (!list(*stub, request, response)) return 1;
    ms.push_back(ms_since(begin));
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%d jobs: p50 %.2f ms, p99 %.2f ms of %zu calls\n", response.jobs_size(),
              ms[ms.size() / 2], ms[ms.size() * 99 / 100], ms.size());
  return 0;
}
