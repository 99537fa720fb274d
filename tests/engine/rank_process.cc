#include "tests/engine/rank_process.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "src/job/reporter.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"
#include "tests/engine/peers_support.h"
#include "tests/engine/rank_support.h"

namespace trainyard::testing {
namespace {

class Printer final : public Reporter {
 public:
  void started(const RunPlan& plan) override { say("from " + std::to_string(plan.first_step)); }
  void progressed() override { say("step " + std::to_string(++steps_)); }
  void metrics(std::span<const MetricPoint> /*points*/) override {}
  void checkpoint_saved(int64_t step, const std::filesystem::path& /*path*/) override {
    say("saved " + std::to_string(step));
  }
  void checkpoint_failed(int64_t step, const Error& error) override {
    say("not saved " + std::to_string(step) + " " + error.message);
  }
  void log(std::string_view /*message*/) override {}

  static void say(const std::string& text) {
    std::puts(text.c_str());
    std::fflush(stdout);
  }

 private:
  int64_t steps_ = 0;
};

}  // namespace

int run_rank_process(int argc, char** argv, const JoinDevices& join) {
  if (argc != 8) return 2;
  const int64_t index = std::atoll(argv[1]), count = std::atoll(argv[2]);
  auto listener = PeerListener::open("127.0.0.1").value();
  Printer::say("port " + std::to_string(listener.endpoint().port));
  std::vector<PeerEndpoint> all;
  for (int64_t p = 0; p < count; ++p) {
    int port = 0;
    std::cin >> port;
    all.push_back({"127.0.0.1", port});
  }
  const PeerOptions options{.silence_limit = std::chrono::milliseconds(std::atoll(argv[5]))};
  auto peers = Peers::connect(std::move(listener), {index, count, kPeerKey}, all, options).value();
  TrainJob job;
  job.model = image_model();
  job.recipe.steps = std::atoll(argv[6]);
  job.recipe.batch_size = 16;
  job.recipe.optimizer = default_optimizer("adamw");
  job.recipe.seed = 5;
  job.recipe.shard = argv[7] == std::string("parameters") ? Shard::kParameters : Shard::kOptimizer;
  job.recipe.checkpoint_every_steps = 25;
  job.recipe.validation_split = 0.2;
  job.recipe.evaluate_every_steps = 500;
  job.dataset = argv[3];
  job.checkpoints = std::filesystem::path(argv[4]) / "checkpoints";
  job.model_output = std::filesystem::path(argv[4]) / "model";
  std::filesystem::create_directories(argv[4]);
  Printer printer;
  try {
    const auto result = train(job, join(peers), local_files(), printer, {});
    Printer::say(result.ok() ? "done" : "error " + result.error().reason);
    return result.ok() ? 0 : 1;
  } catch (const RankLost& e) {
    Printer::say("lost " + std::to_string(e.rank) + ": " + e.what());
  } catch (const std::exception& e) {
    Printer::say(std::string("fault ") + e.what());
  }
  return 1;
}

}  // namespace trainyard::testing
