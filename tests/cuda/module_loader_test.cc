// Catches: a host without a usable GPU on which the worker crashes, hangs or reports an
// incomprehensible error.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "src/runtime/cuda_module.h"

namespace trainyard {
namespace {

std::string beside_test(const char* name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

TEST(CudaModule, IsRefusedWhereItIsMissing) {
  const auto refused = open_cuda_backend("/nonexistent/libtrainyard_cuda.so", 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(refused.error().reason, "CUDA_MODULE_MISSING");
  EXPECT_NE(refused.error().message.find("/nonexistent/libtrainyard_cuda.so"), std::string::npos);
}

// A bare file name would be searched along the library path.
TEST(CudaModule, IsRefusedByARelativePath) {
  const auto refused = open_cuda_backend("libc.so.6", 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "CUDA_MODULE_MISSING");
}

TEST(CudaModule, IsRefusedWhereItIsNoLibrary) {
  const std::filesystem::path path = ::testing::TempDir() + "not_a_library.so";
  std::ofstream(path) << "not an ELF file";
  const auto refused = open_cuda_backend(path, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "CUDA_LIBRARY_MISSING");
  std::filesystem::remove(path);
}

TEST(CudaModule, NamesTheLibraryThatItLacks) {
  const auto refused = open_cuda_backend(beside_test("libneeds_absent.so"), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refused.error().reason, "CUDA_LIBRARY_MISSING");
  EXPECT_NE(refused.error().message.find("libtrainyard_test_absent.so"), std::string::npos)
      << refused.error().message;
}

TEST(CudaModule, IsRefusedWithoutItsEntryPoint) {
  const auto refused = open_cuda_backend(beside_test("libnot_a_module.so"), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "CUDA_MODULE_MISMATCH");
  EXPECT_NE(refused.error().message.find("is not a Trainyard CUDA module"), std::string::npos);
}

TEST(CudaModule, IsLookedForBesideTheProgram) {
  unsetenv("TRAINYARD_CUDA_MODULE");
  const std::filesystem::path path = cuda_module_path();
  EXPECT_TRUE(path.is_absolute());
  EXPECT_EQ(path.filename(), "libtrainyard_cuda.so");
  EXPECT_EQ(path.parent_path().filename(), "trainyard");
  setenv("TRAINYARD_CUDA_MODULE", "/elsewhere/module.so", 1);
  EXPECT_EQ(cuda_module_path(), "/elsewhere/module.so");
  unsetenv("TRAINYARD_CUDA_MODULE");
}

#ifdef TRAINYARD_TEST_CUDA_MODULE

TEST(CudaModule, LoadsAndSaysWhatIsWrongWithTheDevice) {
  // No machine has this ordinal, so the request is refused with and without a GPU.
  const auto refused = open_cuda_backend(TRAINYARD_TEST_CUDA_MODULE, 1000);
  ASSERT_FALSE(refused.ok());
  const std::string& message = refused.error().message;
  const bool has_driver = message.find("GPU 1000 is not available") != std::string::npos;
  EXPECT_EQ(refused.error().reason, has_driver ? "CUDA_UNAVAILABLE" : "HOST_FAULT") << message;
  EXPECT_TRUE(has_driver || message.find("NVIDIA driver") != std::string::npos) << message;
}

TEST(CudaModule, RefusesAProgramOfAnotherBuild) {
  void* const handle = dlopen(TRAINYARD_TEST_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  ASSERT_NE(handle, nullptr) << dlerror();
  auto* const open = reinterpret_cast<CudaModuleOpen*>(dlsym(handle, kCudaModuleEntry));
  ASSERT_NE(open, nullptr);
  std::array<char, 256> text{};
  Backend* backend = nullptr;
  EXPECT_EQ(open(kCudaModuleAbi + 1, cuda_module_build(), 0, &backend, text.data(), text.size()),
            CudaModuleStatus::kMismatch);
  EXPECT_NE(std::string(text.data()).find("another build"), std::string::npos);
  EXPECT_EQ(open(kCudaModuleAbi, "0.0.0 other", 0, &backend, text.data(), text.size()),
            CudaModuleStatus::kMismatch);
  EXPECT_EQ(backend, nullptr);
}

// The message is truncated to the buffer and terminated.
TEST(CudaModule, KeepsToTheErrorBuffer) {
  void* const handle = dlopen(TRAINYARD_TEST_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  ASSERT_NE(handle, nullptr);
  auto* const open = reinterpret_cast<CudaModuleOpen*>(dlsym(handle, kCudaModuleEntry));
  ASSERT_NE(open, nullptr);
  std::array<char, 16> text;
  text.fill('x');
  Backend* backend = nullptr;
  open(kCudaModuleAbi + 1, "", 0, &backend, text.data(), 8);
  EXPECT_EQ(text[7], '\0');
  EXPECT_EQ(text[8], 'x');
}

#endif

}  // namespace
}  // namespace trainyard
