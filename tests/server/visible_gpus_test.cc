// Fails if a job runs on another GPU than the one that its device's name means.
#include "src/runtime/visible_gpus.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace trainyard {
namespace {

class VisibleGpus : public ::testing::Test {
 protected:
  VisibleGpus() { ::setenv("TRAINYARD_NVML_SCRIPT", "devices=3,mig=2", 1); }
  ~VisibleGpus() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  static std::string names(const std::optional<std::string>& setting) {
    const auto nvml = Nvml::load(FAKE_NVML_LIBRARY);
    std::string text;
    for (const NvmlDevice& gpu : visible_gpus((*nvml)->read_devices().value(), setting)) {
      text += (text.empty() ? "" : " ") + gpu.name;
    }
    return text;
  }
  /// Returns the CUDA setting for these devices, or the error.
  static std::string shown(const std::vector<std::string>& devices,
                           const std::string& library = FAKE_NVML_LIBRARY) {
    const Status s = set_visible_gpus(devices, library);
    return s.ok() ? visible_gpus_setting().value_or("unset") : s.error().message;
  }
};

TEST_F(VisibleGpus, NamesAreParsed) {
  EXPECT_EQ(parse_gpu_name("devices/gpu-12")->index, 12);
  EXPECT_FALSE(parse_gpu_name("devices/gpu-12")->instance.has_value());
  EXPECT_EQ(parse_gpu_name("devices/gpu-0-mig-3")->instance, 3);
  for (const char* no : {"devices/cpu", "devices/gpu-", "devices/gpu--1", "devices/gpu-1x", "gpu-0",
                         "devices/gpu-0-mig-", "devices/gpu-0-mig-1x"}) {
    EXPECT_FALSE(parse_gpu_name(no).has_value()) << no;
  }
}

TEST_F(VisibleGpus, TheSettingIsReadLikeCudaDoes) {
  EXPECT_EQ(names(std::nullopt), "gpu-0-mig-0 gpu-0-mig-2 gpu-1 gpu-2");
  EXPECT_EQ(names("2,1"), "gpu-1 gpu-2");
  EXPECT_EQ(names("0"), "gpu-0-mig-0 gpu-0-mig-2") << "all instances of it";
  EXPECT_EQ(names("MIG-0-2,GPU-2"), "gpu-0-mig-2 gpu-2");
  EXPECT_EQ(names("1,7,2"), "gpu-1") << "what follows an invalid one does not count";
  EXPECT_EQ(names("1x"), "");
  EXPECT_EQ(names("-1"), "");
  EXPECT_EQ(names(""), "");
}

TEST_F(VisibleGpus, AreListedByUuidInTheJobsOrder) {
  EXPECT_EQ(shown({"devices/cpu"}), "unset");
  EXPECT_EQ(shown({"devices/gpu-2", "devices/gpu-1"}), "GPU-2,GPU-1");
  EXPECT_EQ(shown({"devices/gpu-2", "devices/gpu-1"}), "GPU-2,GPU-1") << "once more";
  EXPECT_EQ(shown({"devices/gpu-0-mig-2"}),
            "devices/gpu-0-mig-2 is not available: CUDA_VISIBLE_DEVICES=GPU-2,GPU-1 hides it");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(shown({"devices/gpu-0-mig-2"}), "MIG-0-2");
}

TEST_F(VisibleGpus, TheFirstIsUsedIfNoneIsNamed) {
  const std::string none = "libnvidia-ml-that-is-not-there.so.1";
  EXPECT_EQ(nth_visible_gpu(0, FAKE_NVML_LIBRARY).value(), "devices/gpu-0-mig-0");
  EXPECT_EQ(nth_visible_gpu(1, none).value(), "devices/gpu-1");
  ::setenv("CUDA_VISIBLE_DEVICES", "2,1", 1);
  EXPECT_EQ(nth_visible_gpu(0, FAKE_NVML_LIBRARY).value(), "devices/gpu-1");
  EXPECT_EQ(nth_visible_gpu(1, FAKE_NVML_LIBRARY).value(), "devices/gpu-2");
  EXPECT_EQ(nth_visible_gpu(2, FAKE_NVML_LIBRARY).error().message,
            "3 GPUs are not available: CUDA sees 2");
  EXPECT_EQ(nth_visible_gpu(0, none).value(), "devices/gpu-2");
}

TEST_F(VisibleGpus, UnknownOnesAreRefusedWithTheKnownOnes) {
  EXPECT_EQ(shown({"devices/gpu-3"}),
            "devices/gpu-3 is not available: there is gpu-0-mig-0, gpu-0-mig-2, gpu-1, gpu-2");
  ::setenv("TRAINYARD_NVML_SCRIPT", "devices=2,broken=1", 1);
  EXPECT_EQ(shown({"devices/gpu-1"}), "devices/gpu-1 is not available: GPU is lost");
  ::setenv("TRAINYARD_NVML_SCRIPT", "devices=0", 1);
  EXPECT_EQ(shown({"devices/gpu-0"}),
            "devices/gpu-0 is not available: the NVIDIA driver shows no GPU");
}

TEST_F(VisibleGpus, AreListedByNumberWithoutNvml) {
  const std::string none = "libnvidia-ml-that-is-not-there.so.1";
  EXPECT_EQ(shown({"devices/gpu-3", "devices/gpu-1"}, none), "3,1");
  EXPECT_EQ(shown({"devices/gpu-1"}, none), "1");
  EXPECT_EQ(shown({"devices/gpu-0"}, none),
            "devices/gpu-0 is not available: CUDA_VISIBLE_DEVICES=1 does not name it");
}

}  // namespace
}  // namespace trainyard
