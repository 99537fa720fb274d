// Catches: a daemon that starts a job in bf16 on a GPU without bfloat16, or that refuses a job on a
// GPU of 2 GB without saying what the GPU accepts.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

class SmallGpuTest : public ServiceTest {
 protected:
  void SetUp() override {
    Device gpu;
    gpu.name = "devices/gpu-0";
    gpu.kind = DeviceKind::kGpu;
    gpu.model = "NVIDIA GeForce MX450";
    gpu.uuid = "GPU-0";
    gpu.capability = 75;
    gpu.memory_bytes = int64_t{2} << 30;
    gpus_.push_back(gpu);
    ServiceTest::SetUp();
    EXPECT_TRUE(eventually([&] {
      v1::ListDevicesResponse devices;
      if (!system_->ListDevices(context().get(), {}, &devices).ok()) return false;
      return std::ranges::all_of(devices.devices(),
                                 [](const v1::Device& d) { return d.reason().empty(); });
    })) << "the GPU is checked";
    make_dataset();
  }
  static v1::SubmitJobRequest request_with(const std::string& id, v1::Recipe::Precision precision) {
    v1::SubmitJobRequest request = job_request(id, "");
    request.mutable_spec()->mutable_recipe()->set_precision(precision);
    request.mutable_spec()->mutable_resources()->set_device(v1::Resources::GPU);
    return request;
  }
};

TEST_F(SmallGpuTest, Bf16IsRefusedWithWhatTheGpuAccepts) {
  v1::Job job;
  v1::SubmitJobRequest request = request_with("narrow", v1::Recipe::BF16);
  const grpc::Status refused = submit(request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(),
            "spec.recipe.precision: bf16 needs a GPU of compute capability 8.0 or later, and "
            "devices/gpu-0 (NVIDIA GeForce MX450) has 7.5; expected fp16 (half precision with loss "
            "scaling), tf32 or fp32");
  ASSERT_TRUE(submit(request_with("half", v1::Recipe::FP16), &job).ok());
  EXPECT_EQ(wait_for("half", v1::SUCCEEDED).device(), "devices/gpu-0");
  request.mutable_spec()->mutable_resources()->set_device(v1::Resources::AUTO);
  ASSERT_TRUE(submit(request, &job).ok());
  EXPECT_EQ(wait_for("narrow", v1::SUCCEEDED).device(), "devices/cpu");
}

// 134 million parameters, as VGG16 has: the weights and AdamW's state alone take 1.6 GB.
TEST_F(SmallGpuTest, AdviceThatIsTakenIsAccepted) {
  v1::SubmitJobRequest request = request_with("large", v1::Recipe::TF32);
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_model()->mutable_mlp()->clear_hidden();
  for (int i = 0; i < 3; ++i) spec.mutable_model()->mutable_mlp()->add_hidden(8192);
  spec.mutable_recipe()->mutable_optimizer()->set_type(v1::Optimizer::ADAMW);
  v1::Job job;
  const grpc::Status refused = submit(request, &job);
  EXPECT_EQ(reason_of(refused), "RESOURCES_IMPOSSIBLE");
  const std::string message = refused.error_message();
  static const std::regex way(
      R"(recipe\.optimizer\.type: (\w+)( with recipe\.batch_size: (\d+))?)");
  int taken = 0;
  for (auto it = std::sregex_iterator(message.begin(), message.end(), way);
       it != std::sregex_iterator(); ++it, ++taken) {
    v1::SubmitJobRequest changed = request;
    changed.set_validate_only(true);
    v1::Recipe& recipe = *changed.mutable_spec()->mutable_recipe();
    std::string type = (*it)[1];
    std::ranges::transform(type, type.begin(),
                           [](char c) { return static_cast<char>(c - 'a' + 'A'); });
    v1::Optimizer::Type parsed;
    ASSERT_TRUE(v1::Optimizer::Type_Parse(type, &parsed)) << type;
    recipe.mutable_optimizer()->set_type(parsed);
    if ((*it)[3].matched) recipe.set_batch_size(std::stoll((*it)[3]));
    const grpc::Status accepted = submit(changed, &job);
    EXPECT_TRUE(accepted.ok()) << (*it)[0] << ": " << accepted.error_message();
  }
  EXPECT_GE(taken, 2) << message;
}

}  // namespace
}  // namespace trainyard::server
