// Catches: a host that lacks libraries which some cuDNN engines need, without a warning.
#include "src/runtime/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace trainyard::cuda {
namespace {

TEST(Nvrtc, IsThatOfTheToolkit) {
  EXPECT_EQ(nvrtc_library(), "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000));
}

TEST(Nvrtc, IsNoMatterWhereItIsThere) { EXPECT_EQ(open_nvrtc("libm.so.6"), ""); }

TEST(Nvrtc, IsNamedWithWhatIsLostWithoutIt) {
  const std::string warning = open_nvrtc("libnvrtc.so.0");
  EXPECT_NE(warning.find("libnvrtc.so.0 is missing"), std::string::npos) << warning;
  EXPECT_NE(warning.find("attention in 16 bits"), std::string::npos) << warning;
  EXPECT_NE(warning.find("install NVRTC"), std::string::npos) << warning;
}

}  // namespace
}  // namespace trainyard::cuda
