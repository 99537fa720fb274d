// Catches: a wrong name for an NCCL function, and a refusal that does not say what to install.
// Calls no function of the library that needs a GPU.
#include <gtest/gtest.h>

#include "src/runtime/cuda/nccl.h"

namespace trainyard::cuda {
namespace {

TEST(Nccl, OpensOrSaysWhatToInstall) {
  const auto nccl = open_nccl();
  if (!nccl.ok()) {
    EXPECT_EQ(nccl.error().reason, "NCCL_MISSING");
    EXPECT_NE(nccl.error().message.find("libnccl.so.2"), std::string::npos);
    EXPECT_NE(nccl.error().message.find("install it"), std::string::npos);
    GTEST_SKIP() << nccl.error().message;
  }
  int version = 0;
  EXPECT_EQ((*nccl)->get_version(&version), ncclSuccess);
  EXPECT_GE(version, 21400);
  EXPECT_STRNE((*nccl)->get_error_string(ncclInvalidUsage),
               (*nccl)->get_error_string(ncclSystemError));
}

}  // namespace
}  // namespace trainyard::cuda
