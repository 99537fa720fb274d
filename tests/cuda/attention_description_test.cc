// Catches: a graph of attention that cuDNN has no engine for, because it has an operation too many,
// another order or another type; more workspace than expected. The tests call the real library,
// which compiles its kernels for described GPUs; only the driver is a fake.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "src/runtime/cuda/fused_attention.h"
#include "tests/cuda/described_device.h"

namespace trainyard::cuda {
namespace {

using kernels::AttentionDims;
using kernels::cuda::Format;

struct Case {
  const char* name;
  int64_t N, H, Tq, Tk, D;
  bool causal, packed;
  Format format = Format::kBf16;
};

AttentionProblem problem_of(const Case& c, bool backward) {
  AttentionDims d{};
  d.N = c.N;
  d.H = c.H;
  d.Tq = c.Tq;
  d.Tk = c.Tk;
  d.D = c.D;
  d.q_row = d.kv_row = c.H * c.D * (c.packed ? 3 : 1);
  d.scale = 0.125;
  d.causal = c.causal;
  return {backward, d, c.format};
}

/// The plan that the backend would use.
struct Plan {
  int64_t engine = -1, workspace = -1;  // -1: there is none
};
Plan plan_of(const AttentionProblem& p, cudnnBackendDescriptor_t device, int capability) {
  const AttentionGraph graph(p, p.dims.H * p.dims.D, nullptr);
  const auto take = [&](cudnnBackendDescriptor_t config) {
    Plan found;
    if (!is_allowed(config, {p.format, false})) return found;
    if (const BackendDescriptor plan = described_plan(config, device)) {
      found.engine = choice_of(config).engine;
      found.workspace = dnn::get<int64_t>(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    }
    return found;
  };
  for (const EngineChoice& choice : preferred_engines(p, capability, cudnnGetVersion())) {
    try {
      const RestoredEngine engine = restore_engine(graph.graph(), choice, device);
      if (const Plan plan = take(engine.config.get()); plan.engine >= 0) return plan;
    } catch (const CudaError& e) {
      std::printf("%s: %s\n", words_of(choice).c_str(), e.what());
    }
  }
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const BackendDescriptor& config : propose_engines(graph.graph(), mode, device)) {
      if (const Plan plan = take(config.get()); plan.engine >= 0) return plan;
    }
  }
  return {};
}

class AttentionDescription : public ::testing::Test {
 protected:
  // Loads the fake driver before cuDNN loads the driver: a library of the same name is then reused.
  static void SetUpTestSuite() {
    ASSERT_NE(dlopen(TRAINYARD_TEST_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  }
};

/// Returns the plan of the gradient.
Plan expect_plans(const Case& c, cudnnBackendDescriptor_t device, int capability) {
  SCOPED_TRACE(c.name);
  const Plan forward_plan = plan_of(problem_of(c, false), device, capability);
  const Plan backward_plan = plan_of(problem_of(c, true), device, capability);
  const int64_t forward = forward_plan.workspace, backward = backward_plan.workspace;
  const int64_t ds = ds_bytes(problem_of(c, true).dims, c.N, c.H);
  std::printf("%-22s engines %lld and %lld, workspace %lld and %lld bytes, ds %lld\n", c.name,
              static_cast<long long>(forward_plan.engine),
              static_cast<long long>(backward_plan.engine), static_cast<long long>(forward),
              static_cast<long long>(backward), static_cast<long long>(ds));
  EXPECT_GE(forward, 0);
  EXPECT_LE(forward, 1 << 20);
  EXPECT_GE(backward, 0);
  EXPECT_LE(backward, ds + (1 << 20));
  return backward_plan;
}
/// Expects plans whose workspace contains ds. An engine that adds to dq in the order in which its
/// blocks run would not need it, but would not be deterministic.
void expect_plans_with_ds(const Case& c, cudnnBackendDescriptor_t device, int capability) {
  EXPECT_GE(expect_plans(c, device, capability).workspace, c.N * c.H * c.Tq * c.Tk * 2) << c.name;
}

TEST_F(AttentionDescription, AnH100HasEngines) {
  const BackendDescriptor device = h100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  for (const Case& c : {Case{"GPT-2", 8, 12, 1024, 1024, 64, true, true},
                        Case{"GPT-2, 64 sequences", 64, 12, 1024, 1024, 64, true, true},
                        Case{"ViT-S", 64, 6, 197, 197, 64, false, true},
                        Case{"BERT in f16", 32, 12, 128, 128, 64, false, true, Format::kF16},
                        Case{"cross attention", 4, 8, 100, 77, 64, false, false},
                        Case{"more keys, causal", 4, 8, 77, 100, 64, true, false},
                        Case{"more queries, causal", 4, 8, 100, 77, 64, true, false},
                        Case{"small", 2, 2, 5, 5, 8, true, true, Format::kF16},
                        Case{"wide", 2, 2, 512, 512, 256, true, true}}) {
    expect_plans_with_ds(c, device.get(), 90);
  }
}

TEST_F(AttentionDescription, AnA100HasEngines) {
  const BackendDescriptor device = a100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  for (const Case& c : {Case{"GPT-2", 8, 12, 1024, 1024, 64, true, true},
                        Case{"ViT-S in f16", 64, 6, 197, 197, 64, false, true, Format::kF16},
                        Case{"cross attention", 4, 8, 100, 77, 128, false, false}}) {
    expect_plans_with_ds(c, device.get(), 80);
  }
}

// The heuristics propose engine 7, that of an A100, for the gradient on these GPUs. Their own engine
// is deterministic although its workspace has no room for ds: blocks that added to dq would need a
// sum in F32, which neither the graph nor the workspace has.
TEST_F(AttentionDescription, AB200HasItsOwnEngine) {
  const BackendDescriptor device = b200();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  for (const Case& c : {Case{"GPT-2", 8, 12, 1024, 1024, 64, true, true},
                        Case{"ViT-S in f16", 64, 6, 197, 197, 64, false, true, Format::kF16},
                        Case{"cross attention", 4, 8, 100, 77, 128, false, false},
                        Case{"small", 2, 2, 5, 5, 8, true, true, Format::kF16}}) {
    const Plan gradient = expect_plans(c, device.get(), 100);
    EXPECT_EQ(gradient.engine, 5);
    EXPECT_LT(gradient.workspace, c.N * c.H * c.Tq * c.D * 4);
  }
}

TEST_F(AttentionDescription, AnRtx5090HasEngines) {
  const BackendDescriptor device = rtx_5090();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  for (const Case& c : {Case{"GPT-2", 8, 12, 1024, 1024, 64, true, true},
                        Case{"cross attention", 4, 8, 100, 77, 128, false, false}}) {
    expect_plans_with_ds(c, device.get(), 120);
  }
}

// No engine accepts these heads, so they run on our own kernels.
TEST_F(AttentionDescription, HeadsThatNoEngineTakes) {
  const BackendDescriptor device = a100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  const Case wide{"", 2, 2, 128, 128, 256, true, true};
  EXPECT_GE(plan_of(problem_of(wide, false), device.get(), 80).engine, 0);
  EXPECT_EQ(plan_of(problem_of(wide, true), device.get(), 80).engine, -1);
  const Case odd{"", 2, 2, 128, 128, 20, true, true};
  EXPECT_EQ(plan_of(problem_of(odd, false), device.get(), 80).engine, -1);
}

}  // namespace
}  // namespace trainyard::cuda
