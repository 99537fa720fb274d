// Measures Predict as its clients see it: each sends one row, waits for the answer and sends the
// next. Run by tests/bench/predict_bench.py, which starts the daemon and trains the model.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainyard/v1/model_service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace trainyard::v1;  // NOLINT: a small program about these messages

struct Figures {
  std::mutex mu;
  std::vector<double> ms;  // milliseconds of each answered call
  int64_t refused = 0;
  std::string refusal;  // the newest refusal
};

/// Makes at least one call.
void call_until(Clock::time_point end, const std::string& server, const PredictRequest& request,
                Figures& figures) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a separate connection
  const auto stub = ModelService::NewStub(
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments));
  do {
    grpc::ClientContext context;
    PredictResponse response;
    const auto start = Clock::now();
    const grpc::Status s = stub->Predict(&context, request, &response);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    const std::lock_guard lock(figures.mu);
    if (s.ok()) {
      figures.ms.push_back(ms);
    } else {
      ++figures.refused;
      figures.refusal = s.error_message();
    }
  } while (Clock::now() < end);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: predict_bench SERVER MODEL CSV_FILE CLIENTS SECONDS\n");
    return 2;
  }
  PredictRequest request;
  request.set_name(std::string("projects/default/models/") + argv[2]);
  std::ifstream file(argv[3]);
  request.set_csv(std::string(std::istreambuf_iterator<char>(file), {}));
  Figures figures;
  const auto start = Clock::now();
  const auto end =
      start + std::chrono::milliseconds(static_cast<int64_t>(1000 * std::atof(argv[5])));
  std::vector<std::thread> clients;
  for (int i = 0; i < std::atoi(argv[4]); ++i) {
    clients.emplace_back([&] { call_until(end, argv[1], request, figures); });
  }
  for (std::thread& client : clients) client.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::ranges::sort(figures.ms);
  const auto at = [&](double q) {
    return figures.ms.empty()
               ? 0.0
               : figures.ms[static_cast<size_t>(q * static_cast<double>(figures.ms.size() - 1))];
  };
  std::printf("%zu %lld %.3f %.3f %.3f %.3f %s\n", figures.ms.size(),
              static_cast<long long>(figures.refused), seconds, at(0.5), at(0.99), at(1.0),
              figures.refusal.c_str());
  return 0;
}
