// Catches: a chosen algorithm that is not the fastest of the allowed ones, that is timed again,
// that a second run or a resumed job does not get, or that cannot be restored later. The fakes'
// products and convolutions have several orders of summation, each with a speed that the test sets
// (fake_cuda.h), so that another algorithm shows in the bits of the weights.
#include "src/runtime/algorithms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "src/job/train_job.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/conv_algorithms.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/ranks.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::make_dataset;
using testing::Recorder;
using testing::Workspace;

constexpr double kCosts[] = {300, 100, 200};

/// Restores the fakes' settings at the end of each test.
class CudaAlgorithms : public ::testing::Test {
 protected:
  ~CudaAlgorithms() override {
    for (size_t i = 0; i < std::size(kCosts); ++i) testing::set_algorithm_cost(i, kCosts[i]);
    testing::set_broken_algorithm(-1);
    testing::set_refused_algorithm(-1);
    testing::set_nan_loser(-1);
    testing::set_device_limit(int64_t{1} << 34);
    testing::set_wide_gradients(false);
    testing::set_fast_engines(true);
    testing::set_fault_after(-1);
  }
};

std::shared_ptr<Algorithms> in(const std::filesystem::path& folder, bool times = true) {
  return std::make_shared<Algorithms>(Algorithms::Options{folder, times});
}

std::unique_ptr<cuda::Device> device_with(std::shared_ptr<Algorithms> algorithms) {
  auto device = std::make_unique<cuda::Device>(0);
  device->use_algorithms(std::move(algorithms));
  return device;
}

/// The fake's number of the product's algorithm, derived from its workspace.
int64_t algorithm_of(const cuda::Matmul& product) { return product.workspace_bytes() / 4096 - 1; }

using cuda::ConvolutionPass;
using kernels::cuda::Format;

/// A convolution with 3x3 filters, or with 1x1 filters, which is also a product. Our own kernels
/// refuse images that are `wide`.
kernels::ConvDims dims(int64_t size = 3, bool wide = true) {
  kernels::ConvDims d{{2, 4, 4, wide ? 36 : 4}, 4, {}, 1};
  d.window = {size, size};
  return d;
}
/// Operands have the type `format`; the gradient of the filters is always F32.
cuda::Convolution convolution(const cuda::Device& device,
                              ConvolutionPass pass = ConvolutionPass::kForward,
                              Format format = Format::kF32, int64_t size = 3, bool wide = true) {
  const bool bias = pass == ConvolutionPass::kForward && size > 1;
  const Format result = pass == ConvolutionPass::kWeights ? Format::kF32 : format;
  using enum cuda::Convolution::Epilogue;
  return {device,
          "conv",
          pass,
          dims(size, wide),
          true,
          bias ? kBias : kNone,
          {format, format, result, false}};
}
int64_t engine_of(const cuda::Convolution& c) {
  const std::string words = c.choice();
  const size_t at = words.find("engine=");
  return at == std::string::npos ? -1 : words[at + 7] - '0';
}

/// Prepares a convolution with bias and ReLU, expects it to use `engine`, and runs it. Without an
/// engine for all three, our own kernel would compute the ReLU.
void run_relu(const cuda::Device& device, Format format, int64_t engine) {
  const kernels::ConvDims d = dims();
  const cuda::Convolution c(device, "conv", ConvolutionPass::kForward, d, true,
                            cuda::Convolution::Epilogue::kBiasRelu,
                            {format, format, format, false});
  EXPECT_EQ(engine_of(c), engine);
  const auto memory = [&](int64_t elements) {
    cuda::DeviceMemory m = device.allocate(4 * elements);
    cuda::check(cudaMemsetAsync(m.get(), 0, static_cast<size_t>(4 * elements), device.stream()),
                "clearing");
    return m;
  };
  const auto x = memory(d.x.elements()), w = memory(d.weight_elements()), bias = memory(d.K),
             y = memory(d.y().elements()), workspace = memory(c.workspace_bytes() / 4);
  const int64_t before = testing::submitted_works().of(testing::WorkKind::kKernel);
  c.run({x.get(), format}, {w.get(), format}, static_cast<const float*>(bias.get()),
        {y.get(), format}, workspace.get());
  device.synchronize();
  // Our kernels reorder the filters, and in 16 bits narrow the bias.
  EXPECT_EQ(testing::submitted_works().of(testing::WorkKind::kKernel) - before,
            format == Format::kF32 ? 1 : 2);
}

const cuda::MatmulDims kProduct{3, 5, 7};

TEST_F(CudaAlgorithms, TheFastestIsTakenAndTakenAgain) {
  const Workspace w;
  {
    const auto device = device_with(in(w / "algorithms"));
    EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 1);
    EXPECT_EQ(engine_of(convolution(*device)), 5);
  }
  const int64_t memory = testing::device_bytes();
  testing::set_algorithm_cost(2, 1);
  testing::set_algorithm_cost(1, 500);
  const auto device = device_with(in(w / "algorithms"));
  const int64_t products = testing::submitted_works().of(testing::WorkKind::kProduct),
                engines = testing::submitted_works().of(testing::WorkKind::kDnn);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 1);
    EXPECT_EQ(engine_of(convolution(*device)), 5);
  }
  // Nothing was timed, but each choice ran once.
  EXPECT_EQ(testing::submitted_works().of(testing::WorkKind::kProduct), products + 1);
  EXPECT_EQ(testing::submitted_works().of(testing::WorkKind::kDnn), engines + 1);
  EXPECT_EQ(testing::device_bytes(), memory);
  // Another problem is timed.
  cuda::MatmulDims other = kProduct;
  other.transpose_a = true;
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, other)), 2);
  EXPECT_GT(testing::submitted_works().of(testing::WorkKind::kProduct), products + 2);
  EXPECT_EQ(testing::device_bytes(), memory);  // the buffers used for timing have been released
}

TEST_F(CudaAlgorithms, EachPartOfAProblemMakesAnother) {
  const Workspace w;
  const auto algorithms = in(w / "algorithms");
  const auto device = device_with(algorithms);
  using enum kernels::cuda::Format;
  std::vector<cuda::MatmulDims> problems(15, {16, 16, 16});
  problems[1].m = 8;
  problems[2].n = 8;
  problems[3].k = 8;
  problems[4].transpose_a = true;
  problems[5].transpose_b = true;
  problems[6].bias = true;
  problems[7].batch = 2;
  problems[7].stride_a = problems[7].stride_b = problems[7].stride_c = 256;
  problems[8] = problems[7];
  problems[8].stride_b = 0;
  problems[9].operands = problems[9].c = kBf16;
  problems[10].operands = kBf16;
  problems[11].accumulate = true;
  problems[12].tf32 = true;
  problems[13].row_a = 32;
  problems[14].alignment = 4;
  for (const auto e : {cuda::Epilogue::kGelu, cuda::Epilogue::kGeluKept, cuda::Epilogue::kGeluGrad,
                       cuda::Epilogue::kSumsOfA, cuda::Epilogue::kRelu, cuda::Epilogue::kReluKept,
                       cuda::Epilogue::kReluGrad}) {
    problems.push_back(problems[0]);
    problems.back().epilogue = e;
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    const cuda::Matmul product(*device, problems[i]);
    EXPECT_EQ(algorithm_of(product), 1) << i;
    EXPECT_EQ(algorithms->used().begin()->second.size(), i + 1);
  }
}

TEST_F(CudaAlgorithms, ALittleFasterIsNoReason) {
  const Workspace w;
  testing::set_algorithm_cost(0, 3000);
  testing::set_algorithm_cost(1, 2970);
  testing::set_algorithm_cost(2, 2980);
  const auto device = device_with(in(w / "algorithms"));
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 0);
  EXPECT_EQ(engine_of(convolution(*device)), 4);
}

TEST_F(CudaAlgorithms, OneThatDoesNotStartIsLeftOut) {
  const Workspace w;
  testing::set_broken_algorithm(1);
  const auto device = device_with(in(w / "algorithms"));
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 2);
  EXPECT_EQ(engine_of(convolution(*device)), 4);
}

// Without timing, an algorithm that the library proposes is run once before it is taken.
TEST_F(CudaAlgorithms, AFirstProposalThatDoesNotRunIsLeftOut) {
  testing::set_broken_algorithm(0);
  const cuda::Device device(0);
  EXPECT_EQ(algorithm_of(cuda::Matmul(device, kProduct)), 1);
  EXPECT_EQ(engine_of(convolution(device)), 5);
  EXPECT_NO_THROW(run_relu(device, Format::kF32, 5));
  // In 16 bits, the engine 1 on tensor cores comes first, which no test can break.
  EXPECT_NO_THROW(run_relu(device, Format::kBf16, 1));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// The bias, the ReLU and the convolution stay one node if a later engine can compute them.
TEST_F(CudaAlgorithms, AFirstProposalThatLosesNanIsLeftOut) {
  testing::set_nan_loser(0);
  const cuda::Device plain(0);
  for (const Format format : {Format::kF32, Format::kBf16}) run_relu(plain, format, 5);
  for (const auto epilogue : {cuda::Epilogue::kRelu, cuda::Epilogue::kReluKept}) {
    cuda::MatmulDims dims{16, 16, 16};
    dims.epilogue = epilogue;
    EXPECT_TRUE(cuda::Matmul::is_supported(plain, dims));
    EXPECT_EQ(algorithm_of(cuda::Matmul(plain, dims)), 1);
  }
  // The fastest one that keeps NaN is not the fastest.
  const Workspace w;
  testing::set_nan_loser(1);
  const auto timed = device_with(in(w / "algorithms"));
  run_relu(*timed, Format::kF32, 4);
  cuda::MatmulDims dims{16, 16, 16};
  dims.epilogue = cuda::Epilogue::kRelu;
  EXPECT_EQ(algorithm_of(cuda::Matmul(*timed, dims)), 2);
}

TEST_F(CudaAlgorithms, ARecordedChoiceThatDoesNotRunIsTimedAnew) {
  const Workspace w;
  for (const auto& [broken, expected, engine] : {std::tuple{-1, 1, 5}, std::tuple{1, 2, 4}}) {
    testing::set_broken_algorithm(broken);
    const auto algorithms = in(w / "algorithms");
    const auto device = device_with(algorithms);
    EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), expected);
    EXPECT_EQ(engine_of(convolution(*device)), engine);
    const auto messages = algorithms->take_messages();
    EXPECT_EQ(messages.empty() ? false : messages[0].starts_with("2 recorded choices"),
              broken == 1);
  }
}

// A fault of the device is none of the algorithm's, and ends the job.
TEST_F(CudaAlgorithms, ATrialThatBreaksTheContextIsNoRefusal) {
  const cuda::Device device(0);
  testing::set_fault_after(1);
  EXPECT_THROW(cuda::Matmul(device, kProduct), CudaError);
  testing::set_fault_after(1);
  EXPECT_THROW((void)convolution(device), CudaError);
}

TEST_F(CudaAlgorithms, OneThatCannotBeTakenAgainIsLeftOut) {
  const Workspace w;
  testing::set_refused_algorithm(1);
  const auto device = device_with(in(w / "algorithms"));
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 2);
  EXPECT_EQ(engine_of(convolution(*device)), 4);
}

TEST_F(CudaAlgorithms, ARefusedChoiceIsTimedAnew) {
  const Workspace w;
  for (const auto& [refused, expected, engine] : {std::tuple{-1, 1, 5}, std::tuple{1, 2, 4}}) {
    testing::set_refused_algorithm(refused);
    const auto algorithms = in(w / "algorithms");
    const auto device = device_with(algorithms);
    EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), expected);
    EXPECT_EQ(engine_of(convolution(*device)), engine);
    const auto messages = algorithms->take_messages();
    EXPECT_EQ(messages.empty() ? false : messages[0].starts_with("2 recorded choices"),
              refused == 1);
  }
}

TEST_F(CudaAlgorithms, WordsOfNobodyAreRefused) {
  const Workspace w;
  const auto first = in(w / "algorithms");
  {
    const auto device = device_with(first);
    const cuda::Matmul product(*device, kProduct);
    (void)convolution(*device);
  }
  const AlgorithmRecord good = first->used();
  for (const char* bad :
       {"x", "cublaslt ", "cublaslt zz", "cudnn engine=", "cudnn engine=4 knob", "cudnn engine=4 1",
        "cudnn engine=4 -1=2", "cudnn engine=4 1=2", "cudnn engine=0 0=7", "cudnn engine=99"}) {
    SCOPED_TRACE(bad);
    AlgorithmRecord record = good;
    for (auto& [key, choice] : record.begin()->second) choice = bad;
    const auto algorithms = in(w / "algorithms");
    algorithms->prefer(record);
    const auto device = device_with(algorithms);
    EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 1);
    EXPECT_EQ(engine_of(convolution(*device)), 5);
    EXPECT_FALSE(algorithms->take_messages().empty());
  }
  // An algorithm of the right length, but with split sums, whose order of summation differs.
  AlgorithmRecord record = good;
  for (auto& [key, choice] : record.begin()->second) {
    if (choice.starts_with("cublaslt ")) choice[9 + 2 * 16 + 1] = '1';
  }
  const auto algorithms = in(w / "algorithms");
  algorithms->prefer(record);
  const auto device = device_with(algorithms);
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 1);
  EXPECT_FALSE(algorithms->take_messages().empty());
}

TEST_F(CudaAlgorithms, WithoutMemoryTheFirstIsTakenAndRecorded) {
  const Workspace w;
  testing::set_device_limit(16);
  const auto algorithms = in(w / "algorithms");
  {
    const auto device = device_with(algorithms);
    EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 0);
  }
  const auto messages = algorithms->take_messages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("too little memory to time"), std::string::npos);
  testing::set_device_limit(int64_t{1} << 34);
  const auto device = device_with(in(w / "algorithms"));
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 0);
}

TEST_F(CudaAlgorithms, WithoutATableTheFirstIsTaken) {
  const cuda::Device plain(0);
  EXPECT_EQ(algorithm_of(cuda::Matmul(plain, kProduct)), 0);
  EXPECT_EQ(engine_of(convolution(plain)), 4);
  const auto off = in({});
  const auto device = device_with(off);
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 0);
  EXPECT_EQ(engine_of(convolution(*device)), 4);
  EXPECT_EQ(off->used().begin()->second.size(), 2u);  // a checkpoint stores the choices
}

TEST_F(CudaAlgorithms, AProblemWithoutAnEngineHasNone) {
  const Workspace w;
  testing::set_convolution_engines(false);
  const auto algorithms = in(w / "algorithms");
  const auto device = device_with(algorithms);
  EXPECT_THROW((void)convolution(*device), CudaError);
  testing::set_convolution_engines(true);
  EXPECT_TRUE(algorithms->used().empty());
}

/// The choice of a device with these recorded algorithms for a filter's gradient in bf16.
std::string gradient_choice(const std::shared_ptr<Algorithms>& algorithms, int64_t size = 3) {
  const auto device = device_with(algorithms);
  return convolution(*device, ConvolutionPass::kWeights, Format::kBf16, size).choice();
}

TEST_F(CudaAlgorithms, AFiltersGradientIsOneChoiceOfItsWays) {
  const Workspace w;
  testing::set_wide_gradients(true);
  // Without timing the gradient is rounded to bf16, for which cuDNN has its fast engines.
  EXPECT_TRUE(gradient_choice(in({})).starts_with("bf16 cudnn engine=1 "));
  const auto algorithms = in(w / "a");
  EXPECT_TRUE(gradient_choice(algorithms).starts_with("bf16 cudnn engine=5 "));
  const std::string key = algorithms->used().begin()->second.begin()->first;
  EXPECT_NE(key.find(" bf16 workspace"), std::string::npos) << key;
  // The F32 result is now the fastest; without such an engine, the product is.
  testing::set_algorithm_cost(2, 10);
  EXPECT_TRUE(gradient_choice(in(w / "b")).starts_with("F32 cudnn engine="));
  testing::set_wide_gradients(false);
  EXPECT_TRUE(gradient_choice(in(w / "c")).starts_with("bf16 cudnn engine=5 "));
  EXPECT_EQ(gradient_choice(in(w / "c"), /*size=*/1), "product");
  EXPECT_EQ(gradient_choice(in(w / "c"), /*size=*/1), "product");
}

std::vector<float> numbers(int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (static_cast<float>(i * 37 % 64) - 31.5f);  // exact in bf16
  }
  return values;
}

/// The result of the convolution with the choice of `algorithms`, which is stored in `choice`.
std::vector<float> result_of(const std::shared_ptr<Algorithms>& algorithms, ConvolutionPass pass,
                             Format format, std::string& choice) {
  const kernels::ConvDims d = dims(1);
  const auto device = device_with(algorithms);
  const cuda::Convolution c = convolution(*device, pass, format, 1);
  choice = c.choice();
  const int64_t image = d.x.elements(), filter = d.weight_elements(), output = d.y().elements();
  const bool forward = pass == ConvolutionPass::kForward, data = pass == ConvolutionPass::kData;
  const auto upload = [&](int64_t count, float scale) {
    const std::vector<float> values = numbers(count, scale);
    cuda::DeviceMemory memory = device->allocate(count * 4);
    for (size_t i = 0; i < values.size(); ++i) {
      testing::write_element(format, memory.get(), static_cast<int64_t>(i), values[i]);
    }
    return memory;
  };
  const cuda::DeviceMemory a = upload(data ? output : image, 1.0f / 64),
                           b = upload(forward || data ? filter : output, 1.0f / 32),
                           result = device->allocate(4 * std::max(image, output)),
                           workspace = device->allocate(c.workspace_bytes());
  const Format made = pass == ConvolutionPass::kWeights ? Format::kF32 : format;
  c.run({a.get(), format}, {b.get(), format}, nullptr, {result.get(), made}, workspace.get());
  device->synchronize();
  std::vector<float> values;
  for (int64_t i = 0; i < (forward ? output : data ? image : filter); ++i) {
    values.push_back(testing::read_element(made, result.get(), i));
  }
  return values;
}

TEST_F(CudaAlgorithms, AConvolutionOfSinglePixelsIsTheSameAsAProduct) {
  using enum cuda::ConvolutionPass;
  for (const ConvolutionPass pass : {kForward, kData, kWeights}) {
    for (const Format format : {Format::kF32, Format::kBf16}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(pass)) + " " +
                   std::to_string(static_cast<int>(format)));
      std::string first, other;
      const auto algorithms = in({});
      const std::vector<float> expected = result_of(algorithms, pass, format, first);
      // In F32 the product comes first, in the other formats a cuDNN engine.
      EXPECT_EQ(first == "product", format == Format::kF32);
      const std::string knob = std::to_string(CUDNN_KNOB_TYPE_TILE_SIZE) + "=7";
      AlgorithmRecord record = algorithms->used();
      for (auto& [key, choice] : record.begin()->second) {
        if (!key.starts_with("convolution")) continue;
        choice = first == "product" ? "cudnn engine=4 " + knob : "product";
      }
      const auto preferred = in({});
      preferred->prefer(record);
      const std::vector<float> got = result_of(preferred, pass, format, other);
      EXPECT_NE(other, first);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], expected[i], 1e-2 * (1 + std::abs(expected[i]))) << i;
      }
    }
  }
}

// The emulator's clock counts only engines, so our own kernel seems fastest; it is also the choice
// without timing.
TEST_F(CudaAlgorithms, ASmallConvolutionIsOurOwnOrAnEngines) {
  const Workspace w;
  for (const auto pass :
       {ConvolutionPass::kForward, ConvolutionPass::kData, ConvolutionPass::kWeights}) {
    const auto choice = [&](const std::shared_ptr<Algorithms>& algorithms) {
      const auto device = device_with(algorithms);
      return convolution(*device, pass, Format::kBf16, 3, /*wide=*/false).choice();
    };
    const auto untimed = in({}), timed = in(w / "algorithms");
    EXPECT_EQ(choice(untimed), "direct");
    EXPECT_EQ(choice(timed), "direct");
  }
}

// The naive engine takes no time on the fake, so by timing alone it would win.
TEST_F(CudaAlgorithms, TheNaiveEngineIsTheLastResort) {
  const Workspace w;
  EXPECT_EQ(engine_of(convolution(*device_with(in(w / "a")))), 5);
  testing::set_fast_engines(false);
  EXPECT_EQ(engine_of(convolution(*device_with(in(w / "b")))), 6);
  EXPECT_EQ(engine_of(convolution(cuda::Device(0))), 6);
}

TEST_F(CudaAlgorithms, AHopelessOneEndsAfterItsFirstRun) {
  const Workspace w;
  testing::set_algorithm_cost(0, 10'000);
  testing::set_algorithm_cost(1, 100'000);
  testing::set_algorithm_cost(2, 20'000);
  const auto device = device_with(in(w / "algorithms"));
  const auto products = [] { return testing::submitted_works().of(testing::WorkKind::kProduct); };
  const int64_t before = products();
  EXPECT_EQ(algorithm_of(cuda::Matmul(*device, kProduct)), 0);
  // Each algorithm has one run more, as a warm-up, and the chosen one its trial.
  EXPECT_EQ(products() - before, 6 + 2 + 6 + 1);
}

// An engine's refusal is no error, but once an earlier kernel has broken the context, it ends the
// job.
TEST_F(CudaAlgorithms, ABrokenContextIsNoRefusal) {
  const auto device = device_with(in({}));
  const cuda::DeviceMemory memory = device->allocate(4);
  cuda::EngineChoice choice{99, {}};
  const cuda::ConvolutionProblem problem{ConvolutionPass::kForward, dims()};
  EXPECT_FALSE(cuda::ConvolutionPlan::restore(*device, problem, choice).has_value());
  testing::set_fault_after(0);
  (void)cudaMemsetAsync(memory.get(), 0, 4, device->stream());
  EXPECT_THROW((void)cuda::ConvolutionPlan::restore(*device, problem, choice), CudaError);
}

std::vector<RankDevice> gpu(const std::shared_ptr<Algorithms>& algorithms) {
  return testing::connected(1, [&](int r) {
    auto backend = std::make_shared<cuda::CudaBackend>(r);
    if (algorithms != nullptr) backend->use_algorithms(algorithms);
    return backend;
  });
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// The job is stopped at its first checkpoint. Meanwhile another algorithm has become the fastest,
// and the host's file records it.
TEST_F(CudaAlgorithms, AResumedJobGoesOnWithItsOwn) {
  const Workspace w;
  make_dataset(w, true, 60);
  const auto weights = [](const TrainJob& job) {
    return bytes_of(job.model_output / "model.safetensors");
  };
  const TrainJob whole = testing::rank_job(w, "whole"), again = testing::rank_job(w, "again"),
                 parts = testing::rank_job(w, "parts"), other = testing::rank_job(w, "other"),
                 first = testing::rank_job(w, "first"), off = testing::rank_job(w, "off");
  Recorder r;
  testing::run_job(whole, gpu(in(w / "a")), r);
  EXPECT_NE(joined(r.lines).find("timed the algorithms of"), std::string::npos) << joined(r.lines);
  testing::run_job(again, gpu(in(w / "a")), r);
  EXPECT_EQ(weights(again), weights(whole));
  // Timing changes bits, since the fake's algorithms sum in different orders.
  testing::run_job(first, gpu(nullptr), r);
  EXPECT_NE(weights(first), weights(whole));
  testing::run_job(off, gpu(in({})), r);
  EXPECT_EQ(weights(off), weights(first));

  std::stop_source stop;
  Recorder stopped, resumed;
  stopped.stop_step = 5;
  stopped.stop = &stop;
  EXPECT_EQ(train(parts, gpu(in(w / "a")), local_files(), stopped, stop.get_token()).error().reason,
            "STOPPED");
  testing::set_algorithm_cost(1, 900);
  testing::run_job(other, gpu(in(w / "b")), r);
  EXPECT_NE(weights(other), weights(whole));
  testing::run_job(parts, gpu(in(w / "b")), resumed);
  EXPECT_EQ(resumed.plan.first_step, 5);
  EXPECT_EQ(weights(parts), weights(whole));
  EXPECT_EQ(joined(resumed.lines).find("algorithms"), std::string::npos) << joined(resumed.lines);
}

// The checkpoint comes from another class of GPU, so its choices do not apply here.
TEST_F(CudaAlgorithms, ThoseOfAnotherClassAreNotTaken) {
  const Workspace w;
  make_dataset(w, true, 60);
  const TrainJob job = testing::rank_job(w, "job");
  std::stop_source stop;
  Recorder stopped, resumed;
  stopped.stop_step = 5;
  stopped.stop = &stop;
  EXPECT_EQ(train(job, gpu(in(w / "a")), local_files(), stopped, stop.get_token()).error().reason,
            "STOPPED");
  testing::set_device_model("Another GPU");
  testing::run_job(job, gpu(in(w / "a")), resumed);
  testing::set_device_model("Emulated GPU");
  EXPECT_NE(joined(resumed.lines).find("its algorithms are chosen again"), std::string::npos);
  EXPECT_NE(joined(resumed.lines).find("timed the algorithms of"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
