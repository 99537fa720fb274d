// Catches: an error of a library that does not say which algorithm and workspace it concerns, and
// offers of the libraries that scripts/gpu_check does not report.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/graph_cases.h"

namespace trainyard {
namespace {

using kernels::cuda::Format;

TEST(EmulatedReports, AnErrorSaysItsWorkspaceAndTheAlgorithm) {
  testing::CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", {16, 24});
  b.one("head", "Gemm", {{"transB", int64_t{1}}}, {x, b.parameter("w", {8, 24})});
  cuda::CudaBackend cuda(0);
  const auto kernel = cuda.prepare(b.graph(), b.graph().nodes().back());
  auto* const memory = static_cast<std::byte*>(cuda.allocate(1 << 20));
  KernelArgs args;
  args.inputs = {memory + 4, memory + 8192, nullptr};  // 4: misaligned
  args.outputs = {memory + 16384};
  args.workspace = memory + 65536;
  std::string what;
  try {
    kernel->run(args);
  } catch (const CudaError& e) {
    what = e.what();
    EXPECT_EQ(e.fault(), CudaFault::kProgram);
  }
  cuda.release(memory);
  std::ostringstream address;
  address << args.workspace;
  for (const std::string& part :
       {std::string("cublasLtMatmul: "),
        "; workspace of " + std::to_string(kernel->workspace_bytes()) + " bytes at " +
            address.str(),
        std::string("; matmul sizes=16,8,24"), std::string(": cublaslt ")}) {
    EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
  }
}

TEST(EmulatedReports, OffersOfTheLibrariesAreNotedOnce) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "library_offers.jsonl").string();
  std::filesystem::remove(path);
  ASSERT_EQ(setenv("TRAINYARD_LIBRARY_OFFERS", path.c_str(), 1), 0);
  {
    const cuda::Device device(0);
    cuda::MatmulDims dims{48, 40, 56};
    dims.bias = true;
    dims.epilogue = cuda::Epilogue::kRelu;
    const auto ask = [&] {
      return cuda::Product::is_supported(device, dims, Format::kBf16, Format::kBf16, Format::kBf16);
    };
    testing::set_relu_heeds_nan(false);
    EXPECT_FALSE(ask());
    testing::set_relu_heeds_nan(true);
    dims.m = 64;  // another problem: results of the first may be remembered
    EXPECT_TRUE(ask());
    EXPECT_TRUE(ask());
  }
  unsetenv("TRAINYARD_LIBRARY_OFFERS");
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3);
  const std::vector<std::string> offers{"loses NaN", "none", "offered"};
  for (size_t i = 0; i < offers.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with(
        R"({"library": "cuBLASLt", "operation": "product, relu, bias", "formats": "bf16 to bf16", )"))
        << lines[i];
    EXPECT_TRUE(lines[i].ends_with("\"offer\": \"" + offers[i] + "\"}")) << lines[i];
    EXPECT_NE(lines[i].find(i < 2 ? "sizes=48,40,56" : "sizes=64,40,56"), std::string::npos)
        << lines[i];
  }
}

}  // namespace
}  // namespace trainyard
