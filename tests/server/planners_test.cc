// For this commit alone. Catches: an answer that the planner gives otherwise than the former ones.
// The planner compares the two itself, and ends the process where they differ.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "proto/spec/read.h"
#include "src/data/schema.h"
#include "tests/server/service_support.h"
#include "tests/support/source_path.h"

namespace trainyard::server {
namespace {

class Planners : public ServiceTest {
 protected:
  void SetUp() override {}
  void begin(int gpus, int64_t gpu_bytes, int64_t cpu_limit, bool rates) {
    ::setenv("TRAINYARD_COMPARED", "/tmp/w/compared.txt", 1);
    for (int i = 0; i < gpus; ++i) {
      Device gpu;
      gpu.name = "devices/gpu-" + std::to_string(i);
      gpu.kind = DeviceKind::kGpu;
      gpu.model = "H";
      gpu.uuid = "GPU-" + std::to_string(i);
      gpu.memory_bytes = gpu_bytes;
      gpu.memory_used_bytes = i * (70 << 20);
      gpu.overhead_bytes = 10 << 20;
      gpus_.push_back(gpu);
    }
    config_.cpu_memory_bytes_max = cpu_limit;
    config_.measure_after_seconds = rates ? 0 : -1;
    ServiceTest::SetUp();
    tabular();
    images("mono", 1, 28);
    images("rgbs", 3, 32);
    texts("stream", 0);
    texts("rows", 32);
    rates_ = rates;
    if (rates) measure();
  }
  /// Rates that came between the two planners would be a difference.
  void measure() {
    for (const auto precision :
         {v1::Recipe::FP32, v1::Recipe::TF32, v1::Recipe::BF16, v1::Recipe::FP16}) {
      for (const auto device : {v1::Resources::CPU, v1::Resources::GPU}) {
        if (device == v1::Resources::GPU && gpus_.empty()) continue;
        v1::PlanJobRequest request;
        *request.mutable_spec() = job_request("job-a", "").spec();
        request.mutable_spec()->mutable_dataset()->set_name("table");
        request.mutable_spec()->mutable_recipe()->set_precision(precision);
        request.mutable_spec()->mutable_resources()->set_device(device);
        v1::JobPlan plan;
        EXPECT_TRUE(eventually([&] {
          const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
          if (!s.ok()) return s.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
          return plan.run().forecasts_size() > 0 &&
                 plan.run().forecasts(plan.run().forecasts_size() - 1).step_seconds() > 0;
        })) << plan.DebugString();
      }
    }
  }
  void replace(const std::string& id, size_t rows, const DatasetSchema& schema) {
    make_dataset("species", id, rows);
    const auto& digest = dataset_.digest();
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(config_.state_dir / "datasets")) {
      if (entry.path().filename() != "schema.json" ||
          entry.path().string().find(digest) == std::string::npos)
        continue;
      std::ifstream in(entry.path());
      nlohmann::json json = nlohmann::json::parse(in);
      in.close();
      json["schema"] = schema.to_json();
      std::ofstream(entry.path()) << json.dump();
      return;
    }
    FAIL() << "no folder of " << id << " " << digest;
  }
  static DatasetSchema with_classes(int classes) {
    DatasetSchema schema;
    schema.target.name = "y";
    for (int i = 0; i < classes; ++i) schema.target.classes.push_back(std::to_string(i));
    schema.train_rows = 5000;
    return schema;
  }
  void tabular() {
    DatasetSchema schema = with_classes(4);
    schema.columns.resize(30);
    for (size_t i = 0; i < 30; ++i) schema.columns[i].name = "c" + std::to_string(i);
    schema.columns[3].kind = ColumnSchema::Kind::kCategorical;
    schema.columns[3].categories = {"a", "b", "c"};
    for (size_t i = 0; i < 30; ++i) schema.source_columns.push_back("c" + std::to_string(i));
    schema.source_columns.push_back("y");
    replace("table", 1, schema);
  }
  void images(const std::string& id, int64_t channels, int64_t size) {
    DatasetSchema schema = with_classes(10);
    schema.kind = DatasetSchema::Kind::kImage;
    schema.image = Shape({channels, size, size});
    schema.test_rows = 1000;
    replace(id, static_cast<size_t>(channels * 1000), schema);
  }
  void texts(const std::string& id, int64_t length) {
    DatasetSchema schema = with_classes(length == 0 ? 0 : 3);
    schema.kind = DatasetSchema::Kind::kText;
    for (char c = 'a'; c <= 'z'; ++c) schema.text.pieces.push_back(std::string(1, c));
    schema.text.max_length = length;
    if (length == 0) schema.target.kind = TargetSchema::Kind::kNextToken;
    schema.train_rows = 60000;
    replace(id, static_cast<size_t>(7000 + length), schema);
  }

  std::string any(const std::vector<std::string>& texts) { return texts[random_() % texts.size()]; }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  std::string text() {
    struct Pair {
      const char *model, *data;
    };
    static const std::vector<Pair> pairs = {
        {"mlp: {hidden: [256, 256, 64]}", "table"},
        {"mlp: {hidden: [8], dropout: 0.1}", "table"},
        {"mlp: {hidden: [512, 512, 512, 512]}", "mono"},
        {"autoencoder: {hidden: [128], latent: 8}", "table"},
        {"autoencoder: {type: conv, hidden: [8, 16], latent: 8}", "mono"},
        {"lenet5: {}", "mono"},
        {"resnet18: {stem: cifar}", "rgbs"},
        {"vgg11: {}", "rgbs"},
        {"gpt2: {n_layer: 2, n_head: 2, n_embd: 32}", "stream"},
        {"gpt2: {n_layer: 4, n_head: 4, n_embd: 128}", "stream"},
        {"embedding_bag_classifier: {embedding_dim: 16}", "rows"},
        {"lstm_classifier: {hidden_size: 32}", "rows"},
        {"lstm_classifier: {hidden_size: 16, layers: 2}", "rows"},
    };
    const Pair& pair = pairs[random_() % pairs.size()];
    std::string t =
        "dataset: {name: " + std::string(pair.data) + "}\nmodel:\n  " + pair.model +
        "\nrecipe:\n  epochs: " + (chance(4) ? "0" : any({"1", "3"})) +
        "\n  batch_size: " + any({"auto", "1", "16", "64", "256", "512", "1024", "2048", "4096"}) +
        "\n";
    if (std::string(pair.data) == "stream") t += "  context_length: " + any({"16", "64"}) + "\n";
    if (chance(30)) t += "  accumulate_steps: " + any({"1", "2", "4", "4", "8", "3"}) + "\n";
    if (chance(25)) t += "  recompute: " + any({"none", "blocks", "full"}) + "\n";
    if (chance(30)) t += "  precision: " + any({"fp32", "tf32", "bf16", "fp16"}) + "\n";
    if (chance(50))
      t += "  validation_split: " + (chance(4) ? "0.9999" : any({"0.1", "0.5"})) + "\n";
    t += "  optimizer: {type: " + any({"sgd", "adam", "adamw", "lion", "muon", "rmsprop"}) +
         ", learning_rate: 0.01}\n";
    const std::string device = any({"", "auto", "cpu", "gpu", "gpu"});
    std::string r;
    if (!device.empty()) r += "device: " + device;
    if (device == "gpu" && chance(60)) r += ", gpus: " + any({"1", "2", "3", "4"});
    if (device == "gpu" && chance(25))
      r += ", shard: " + any({"none", "optimizer", "[optimizer, head]", "parameters", "mlp"});
    if (!rates_ && !r.empty() && chance(20)) r += ", threads: 2";
    if (!r.empty()) t += "resources: {" + r + "}\n";
    return t;
  }

  void compare(int count) {
    int refused_here = 0, planned = 0;
    for (int i = 0; i < count; ++i) {
      const std::string yaml = text();
      SCOPED_TRACE(yaml);
      std::vector<spec::Problem> problems;
      spec::Document document = spec::Document::parse(yaml, "spec.yaml", problems);
      const v1::JobSpec job = spec::job_spec(spec::read_job(document, problems));
      if (!problems.empty()) {
        ++refused_here;
        if (refused_here < 3) ADD_FAILURE() << document.to_error(problems).message;
        continue;
      }
      v1::SubmitJobRequest submit_request;
      submit_request.set_job_id("job-" + std::to_string(i));
      submit_request.set_validate_only(true);
      *submit_request.mutable_spec() = job;
      v1::Job answer;
      const grpc::Status s = submit(submit_request, &answer);
      if (s.ok()) ++planned;
      v1::PlanJobRequest request;
      *request.mutable_spec() = job;
      request.set_sharding_plans(chance(20));
      if (chance(20)) request.set_dump(v1::PlanJobRequest::MEMORY);
      v1::JobPlan plan;
      const grpc::Status p = jobs_->PlanJob(context().get(), request, &plan);
      if (s.error_code() == grpc::StatusCode::UNAVAILABLE ||
          p.error_code() == grpc::StatusCode::UNAVAILABLE) {
        FAIL() << s.error_message() << p.error_message();
      }
    }
    std::printf("%d of %d planned\n", planned, count);
  }
  std::mt19937 random_{20261129};
  bool rates_ = false;
};

int rounds() {
  const char* n = std::getenv("TRAINYARD_PLANNER_ROUNDS");
  return n != nullptr ? std::atoi(n) : 40;
}

TEST_F(Planners, AgreeOnTheCpu) {
  begin(0, 0, 0, false);
  compare(rounds());
}
TEST_F(Planners, AgreeOnASmallCpu) {
  begin(0, 0, 24 << 20, false);
  compare(rounds());
}
TEST_F(Planners, AgreeOnASmallCpuWithRates) {
  begin(0, 0, 64 << 20, true);
  compare(rounds());
}
TEST_F(Planners, AgreeOnGpus) {
  begin(3, int64_t{8} << 30, 0, false);
  compare(rounds());
}
TEST_F(Planners, AgreeOnSmallGpus) {
  begin(3, 256 << 20, 64 << 20, false);
  compare(rounds());
}
TEST_F(Planners, AgreeOnSmallGpusWithRates) {
  begin(2, 200 << 20, 100 << 20, true);
  compare(rounds());
}

TEST_F(Planners, AgreeOnEachExample) {
  begin(2, 300 << 20, 300 << 20, true);
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_path("examples"))) {
    if (entry.path().extension() != ".yaml") continue;
    std::ifstream in(entry.path());
    std::string yaml((std::istreambuf_iterator<char>(in)), {});
    std::vector<spec::Problem> problems;
    spec::Document document = spec::Document::parse(yaml, "spec.yaml", problems);
    v1::JobSpec job = spec::job_spec(spec::read_job(document, problems));
    ASSERT_TRUE(problems.empty()) << entry.path();
    for (const char* data : {"table", "mono", "rgbs", "stream", "rows"}) {
      job.mutable_dataset()->set_name(data);
      for (const bool gpu : {false, true}) {
        if (gpu) {
          job.mutable_resources()->set_device(v1::Resources::GPU);
          job.mutable_resources()->set_gpus(2);
        } else {
          job.clear_resources();
        }
        v1::SubmitJobRequest submit_request;
        submit_request.set_job_id("job-a");
        submit_request.set_validate_only(true);
        *submit_request.mutable_spec() = job;
        v1::Job answer;
        const grpc::Status s = submit(submit_request, &answer);
        v1::PlanJobRequest request;
        *request.mutable_spec() = job;
        request.set_sharding_plans(true);
        v1::JobPlan plan;
        const grpc::Status p = jobs_->PlanJob(context().get(), request, &plan);
        if (!gpu) continue;  // which may have other devices
        EXPECT_EQ(s.ok(), p.ok() && plan.fit().fits())
            << entry.path() << data << s.error_message() << "\n"
            << p.error_message();
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::server
