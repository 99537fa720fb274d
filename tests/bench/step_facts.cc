#include "tests/bench/step_facts.h"

namespace trainyard::bench {
namespace {

using enum Basis;
using enum Sweep::When;

constexpr std::string_view kByRegisters = "registers by ptxas for sm_90, first run's root causes 5";
constexpr std::string_view kByBudget =
    "registers and loads as cuda_kernel_budget_test holds them; not run on a GPU";
constexpr std::string_view kByCompiler =
    "passes by the kernel's source, registers as cuda_kernel_budget_test asks ptxas";
constexpr std::string_view kByEight = "as above; not run on a GPU";
constexpr std::string_view kByWarp =
    "a row in registers: four packs of each tensor in flight, six with 768 elements; registers as "
    "cuda_kernel_budget_test asks ptxas; not run on a GPU";
constexpr std::string_view kByKeptRow =
    "a row in shared memory, which leaves room for 1,024 threads in 16 bits and 512 in F32, with "
    "64 "
    "and 128 bytes in flight each; about 60 instructions an element take less time; not run on a "
    "GPU";
constexpr std::string_view kByEngine =
    "the operand beside those of the product, which is assumed to be as fast as cuBLASLt's; not "
    "run "
    "on a GPU";
constexpr std::string_view kBySource = "passes by the kernel's source; registers assumed";

// Registers are 40 where ptxas was not run, which allows six blocks of 256 threads. Where it was
// run, cuda_kernel_budget_test checks the line. The registers of an update are those of the kernel
// for large tensors, which are launched separately and have most of the bytes.
constexpr Sweep kSweeps[] = {
    // Batch normalization (channel_norm.cu). 436 and 215 G elements/s are limited by the L1 cache,
    // with 16 and about 24 scalar loads of statistics for four elements, and by eight divisions.
    {"BatchNormalization", "moments", "i0", "", 104, 8, 4, 0, kAlways, kBytes, kByBudget},
    {"BatchNormalization", "normalize", "i0", "o0", 62, 8, 4, 0, kAlways, kBytes, kByBudget},
    {"BatchNormalizationRelu", "moments", "i0", "", 104, 8, 4, 0, kAlways, kBytes, kByBudget},
    {"BatchNormalizationRelu", "normalize", "i0 i5", "o0", 62, 8, 4, 0, kAlways, kBytes, kByBudget},
    {"BatchNormalizationGrad", "gradient_sums", "i0 i4", "", 116, 8, 6, 0, kAlways, kBytes,
     kByBudget},
    {"BatchNormalizationGrad", "differentiate", "i0 i4", "o0", 79, 8, 6, 0, kAlways, kBytes,
     kByBudget},
    {"BatchNormalizationReluGrad", "gradient_sums", "i0 i4 i5 i6", "o3", 116, 8, 6, 0, kAlways,
     kBytes, kByBudget},
    {"BatchNormalizationReluGrad", "differentiate", "i0 i4", "o0", 79, 8, 6, 0, kAlways, kBytes,
     kByBudget},
    {"SkipBatchNormalizationReluGrad", "gradient_sums", "i0 i4 i5 i6 i7", "o3", 116, 8, 8, 0,
     kAlways, kBytes, kByBudget},
    {"SkipBatchNormalizationReluGrad", "differentiate", "i0 i4", "o0", 79, 8, 6, 0, kAlways, kBytes,
     kByBudget},
    // Pools (pool.cu): eight channels of a thread share 32-bit index arithmetic; before, each
    // channel had its own in 64 bits. The estimate is an eighth of the instructions.
    {"MaxPool", "max_forward", "i0", "o0 o1", 46, 8, 3, 576, kAlways, kEstimate, kByEight},
    {"MaxPoolGrad", "max_backward", "i0 i2", "o0", 48, 8, 1, 512, kAlways, kEstimate, kByEight},
    {"AveragePool", "average_forward", "i0", "o0", 56, 1, 1, 72, kAlways, kEstimate,
     "as max_forward"},
    {"AveragePoolGrad", "average_backward", "i0", "o0", 84, 1, 1, 64, kAlways, kEstimate,
     "as max_backward"},
    {"GlobalAveragePool", "reduce", "i0", "o0", 46, 4, 1, 0, kAlways, kBytes, kBySource},
    {"GlobalAveragePoolGrad", "move", "i0", "o0", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    // Sums and elementwise functions.
    {"Add", "combine<Add>", "i0 i1", "o0", 56, 8, 8, 0, kAlways, kBytes, kByBudget},
    {"Cast", "convert_all", "i0", "o0", 38, 8, 2, 0, kAlways, kBytes, kByBudget},
    {"Relu", "forward", "i0", "o0", 24, 4, 1, 0, kAlways, kBytes, kByCompiler},
    {"ReluGrad", "backward", "i0 i1", "o0", 25, 4, 2, 0, kAlways, kBytes, kByCompiler},
    {"Gelu", "forward", "i0", "o0", 31, 4, 1, 0, kAlways, kBytes, kByCompiler},
    {"GeluGrad", "backward", "i0 i1", "o0", 32, 4, 2, 0, kAlways, kBytes, kByCompiler},
    {"ConstantOfShape", "fill_all", "", "o0", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    {"Reorder", "move_tiles", "i0", "o0", 56, 1, 1, 0, kAlways, kBytes, kByRegisters},
    {"Flatten", "move_tiles", "i0", "o0", 56, 1, 1, 0, kAlways, kBytes, kByRegisters},
    {"FlattenGrad", "move_tiles", "i0", "o0", 56, 1, 1, 0, kAlways, kBytes, kByRegisters},
    {"SequencePool", "pool_forward", "i0", "o0", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    {"SequencePoolGrad", "pool_backward", "i0", "o0", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    {"SequenceLengths", "lengths_of_rows", "i0", "o0", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    // Around convolutions (convolution.cc): operands converted to 16 bits, filters in another
    // order.
    {"Conv", "convert_all", "n0", "", 28, 4, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"Conv", "move_tiles", "f1", "", 56, 1, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"Conv", "move (patches)", "i0", "i0", 40, 4, 1, 0, kPatches, kBytes, kBySource},
    {"ConvRelu", "convert_all", "n0", "", 28, 4, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"ConvRelu", "move_tiles", "f1", "", 56, 1, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"ConvGrad", "convert_all", "n0", "", 28, 4, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"ConvGrad", "move_tiles", "f1 F1", "", 56, 1, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"ConvGrad", "move (patches)", "i0 o0", "i0 o0", 40, 4, 1, 0, kPatches, kBytes, kBySource},
    {"ConvGrad", "reduce (bias)", "b2", "", 46, 4, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"ReluConvGrad", "backward (bias, ReLU)", "i3 i2", "o3", 46, 4, 2, 0, kAlways, kBytes,
     kByCompiler},
    {"ReluConvGrad", "convert_all", "n0", "", 28, 4, 1, 0, kNotDirect, kBytes, kByRegisters},
    {"ReluConvGrad", "move_tiles", "f1 F1", "", 56, 1, 1, 0, kNotDirect, kBytes, kByRegisters},
    // Around products (matmul.cc, gemm.cc): each product converts the operands that it needs.
    {"Gemm", "convert_all", "n0 n1", "", 28, 4, 1, 0, kAlways, kBytes, kByRegisters},
    {"GemmGelu", "convert_all", "n0 n1", "", 28, 4, 1, 0, kAlways, kBytes, kByRegisters},
    {"GemmGelu", "forward", "o1", "o0", 31, 4, 1, 0, kSeparateGelu, kBytes, kByCompiler},
    {"GemmGelu", "cuDNN's engine", "", "o0", 40, 8, 8, 0, kGeluEngine, kEstimate, kByEngine},
    {"GemmRelu", "convert_all", "n0 n1", "", 28, 4, 1, 0, kAlways, kBytes, kByRegisters},
    {"GemmGrad", "convert_all", "n0 n1 n2 n2", "", 28, 4, 1, 0, kAlways, kBytes, kByRegisters},
    {"GemmGrad", "column_sum", "i2", "", 32, 1, 4, 0, kNoSumsInProduct, kBytes, kByCompiler},
    {"GeluGemmGrad", "convert_all", "n0 n1 n2 n2", "", 28, 4, 1, 0, kAlways, kBytes, kByRegisters},
    {"GeluGemmGrad", "column_sum", "i2", "", 32, 1, 4, 0, kNoSumsInProduct, kBytes, kByCompiler},
    {"GeluGemmGrad", "backward", "i3 o0", "o0", 32, 4, 2, 0, kSeparateGelu, kBytes, kByCompiler},
    {"GeluGemmGrad", "cuDNN's engine", "i3", "", 40, 8, 8, 0, kGeluEngine, kEstimate, kByEngine},
    {"ReluGemmGrad", "convert_all", "n0 n1 n2 n2", "", 28, 4, 1, 0, kAlways, kBytes, kByRegisters},
    {"ReluGemmGrad", "column_sum", "i2", "", 32, 1, 4, 0, kNoSumsInProduct, kBytes, kByCompiler},
    // Layer normalization (layer_norm.cu): a warp for each row, whose further passes hit the cache.
    {"LayerNormalization", "forward", "i0", "o0", 56, 4, 1, 0, kAlways, kBytes, kByCompiler},
    {"LayerNormalizationGrad", "backward_with_sums", "i0 i2", "o0", 114, 4, 8, 0, kAlways, kBytes,
     kByWarp},
    // Normalization of a sum. A dropout is applied within it; the dropout's gradient is written
    // separately.
    {"SkipNormalization", "forward", "i0 i3", "o0 o3", 56, 4, 2, 0, kAlways, kBytes, kByCompiler},
    {"SkipNormalizationGrad", "backward_with_sums", "i0 i2 i5", "o0 o3", 114, 4, 12, 0, kAlways,
     kBytes, kByWarp},
    // Losses (loss.cu, loss_in_place.cu), tables and positions (embedding.cu, scatter_rows.cu).
    {"SoftmaxCrossEntropyLoss", "xent_in_one_block", "i0 l0", "o1", 46, 4, 1, 0, kAlways, kBytes,
     kByCompiler},
    {"SoftmaxCrossEntropyLossGrad", "xent_gradient", "i0", "o0", 46, 4, 1, 0, kAlways, kBytes,
     kByCompiler},
    {"GemmSoftmaxCrossEntropyLoss", "xent_kept_rows of chunks", "s0", "s0", 54, 8, 2, 0, kAlways,
     kBytes, kByKeptRow},
    {"Gather", "gather_rows", "o0", "o0", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    {"GatherGrad", "fill, sum_runs", "i1", "o0 i1", 40, 4, 1, 0, kAlways, kBytes, kBySource},
    {"PositionEmbedding", "positions_forward", "i0", "o0", 40, 4, 2, 0, kAlways, kBytes, kBySource},
    {"PositionEmbeddingGrad", "position_parts, without_prefix", "i0", "o0", 40, 1, 1, 0, kAlways,
     kBytes, kBySource},
    // Updates (optimizer.cu). The last operand is the copy of the parameter in 16 bits.
    {"SgdUpdate", "update_one<Sgd>", "i0 i1 i3", "i0 i3 i5", 36, 4, 3, 0, kAlways, kBytes,
     kByCompiler},
    {"AdamUpdate", "update_one<Adam>", "i0 i1 i4 i5", "i0 i4 i5 i7", 56, 4, 4, 0, kAlways, kBytes,
     kByCompiler},
    {"AdamWUpdate", "update_one<Adam>", "i0 i1 i4 i5", "i0 i4 i5 i7", 56, 4, 4, 0, kAlways, kBytes,
     kByCompiler},
};

constexpr Sweep kDefault{"",
                         "a kernel that is not in the table",
                         "each",
                         "",
                         40,
                         4,
                         1,
                         0,
                         kAlways,
                         kEstimate,
                         "each operand once"};

// These texts name the measurements that the constants of kFitted are computed from.
// cuda_step_model_test computes them again and fails if one differs, so they change only with a new
// measurement (docs/decisions/model-of-gpu-steps.md).
constexpr std::string_view kBySteps =
    "the first run's steps of MLPs, ResNet-18, VGG16, the transformer classifier and the small "
    "GPT-2";
constexpr std::string_view kByProblems =
    "every second timed problem of at least 10 GFLOP, without odd sizes and cuDNN's naive engine";

constexpr Facts kFacts{
    .multiprocessors = {132, kBytes, "H100 SXM, driver"},
    .registers = {65536, kBytes, "CUDA programming guide, compute capability 9.0"},
    .threads = {2048, kBytes, "the same"},
    .latency_us = {0.65, kEstimate, "microbenchmarks of Hopper's memory, root causes 5"},
    .bandwidth = {2.23e12, kFitted, kBySteps},
    .submission_us = {1.93, kFitted, kBySteps},
    .measuring_us =
        {3.0, kEstimate,
         "events and a cold cache around one run; steps cannot tell it from submissions"},
    .outside_us =
        {15, kEstimate,
         "copies and the graph's launch, root causes 3; steps cannot tell it from "
         "submissions. Of one recording, which then held one step and holds several since "
         "(docs/decisions/submission-of-gpu-steps.md)"},
    .own_attention = {16.0e12, kFitted, kBySteps},
    .own_attention_grad = {11.3e12, kFitted, "12/17 of own_attention, with which it always runs"},
    .tensor_attention =
        {118e12, kEstimate,
         "own_attention, times the ratio of the limits: 40 % of 495 TFLOP/s by shared memory "
         "(tensor_attention.cu) to 40 % of 67 (attention.cu)"},
    .tensor_attention_grad = {83e12, kEstimate, "12/17 of tensor_attention"},
    .library_attention = {191e12, kFitted, kBySteps},
    .library_attention_us = {56, kFitted, kBySteps},
    .engine_70_flops = {381e12, kFitted, kBySteps},
    .engine_70_tile = {128, kEstimate, "ResNet-50 and VGG16 in bf16"},
    .direct_half = {80e12, kEstimate, "tensor cores behind 14 loads from shared memory for four"},
    .direct_f32 = {15e12, kEstimate, "a quarter of the peak: 7 loads of 8 bytes for 16 sums"},
    .direct_us = {2, kEstimate, "two rounds of loads behind one another, beside the submission"},
    .half_product = {567e12, kFitted, kByProblems},
    .tf32_product = {234e12, kFitted, kByProblems},
    .f32_product = {44.5e12, kFitted, kByProblems},
    .half_convolution = {600e12, kFitted, kByProblems},
    .tf32_convolution = {252e12, kFitted, kByProblems},
    .f32_convolution = {25.5e12, kFitted, kByProblems},
};

constexpr std::string_view kTensorAttention =
    "attention on tensor cores (docs/decisions/attention.md)";
constexpr std::string_view kPatchesAndGelu =
    "patches are multiplied by cuBLASLt (docs/decisions/convolutions-on-a-gpu.md); the exact GELU "
    "by cuDNN, with its product (docs/decisions/fused-operations.md)";
constexpr std::string_view kTogether =
    "16 short steps are one submission (docs/decisions/submission-of-gpu-steps.md); ReLU is part "
    "of products (docs/decisions/fused-operations.md)";
constexpr std::string_view kTogetherDirect =
    "16 short steps are one submission; small convolutions are kernels of our own "
    "(docs/decisions/convolutions-on-a-gpu.md); "
    "ReLU is part of pools and products (docs/decisions/fused-operations.md)";

constexpr MeasuredRow kMeasured[] = {
    {"gpt2_small:1024", 16, "bf16", 69.57, 444.4, 537.1,
     "head and loss by chunks (docs/decisions/language-model-head.md)"},
    {"gpt2_small:1024", 16, "tf32", 169.1, 200, 0,
     "head and loss by chunks (docs/decisions/language-model-head.md); attention on tensor cores "
     "(docs/decisions/attention.md)"},
    {"gpt2_small:1024", 16, "fp32", 360.7, 0, 0,
     "head and loss by chunks (docs/decisions/language-model-head.md)"},
    {"resnet50:224", 128, "bf16", 74.10, 6400, 7200,
     "filter gradients in 16 bits end in 16 bits (docs/decisions/convolutions-on-a-gpu.md); batch "
     "normalization loads 16 "
     "bytes"},
    {"resnet50:224", 128, "tf32", 60.03, 0, 0,
     "batch normalization adds the gradients of a block's two ways "
     "(docs/decisions/fused-operations.md)"},
    {"resnet50:224", 128, "fp32", 590.6, 0, 0,
     "strict F32 keeps clear of the naive engine (docs/decisions/convolutions-on-a-gpu.md)"},
    {"vit_base:224", 64, "bf16", 22.63, 3282, 0, kPatchesAndGelu},
    {"vit_base:224", 64, "tf32", 72.18, 0, 0, kTensorAttention},
    {"vit_base:224", 64, "fp32", 189.0, 0, 0},
    {"vgg16:224", 64, "bf16", 52.98, 0, 0,
     "filter gradients in 16 bits end in 16 bits (docs/decisions/convolutions-on-a-gpu.md); ReLU "
     "in front of a pool is its own "
     "(docs/decisions/fused-operations.md)"},
    {"vgg16:224", 64, "tf32", 45.57, 0, 0,
     "max pooling by eight channels a thread, without 64-bit divisions; ReLU in front of a pool is "
     "its own (docs/decisions/fused-operations.md)"},
    {"vgg16:224", 64, "fp32", 0, 0, 0},
    {"resnet18", 512, "bf16", 25.68, 0, 0,
     "filter gradients in 16 bits end in 16 bits (docs/decisions/convolutions-on-a-gpu.md); batch "
     "normalization loads 16 "
     "bytes"},
    {"resnet18", 512, "tf32", 17.53, 0, 0},
    {"resnet18", 512, "fp32", 385.7, 0, 0,
     "strict F32 keeps clear of the naive engine (docs/decisions/convolutions-on-a-gpu.md)"},
    {"lenet5", 64, "bf16", 0.2918, 800e3, 2e6,
     "max pooling by eight channels a thread; casts in one launch; 16 steps are one submission; "
     "small convolutions are kernels of our own (docs/decisions/convolutions-on-a-gpu.md); ReLU is "
     "part of pools and products "
     "(docs/decisions/fused-operations.md)"},
    {"lenet5", 64, "tf32", 0.2786, 0, 0, kTogetherDirect},
    {"lenet5", 64, "fp32", 0.4307, 0, 0, kTogetherDirect},
    {"mlp_small", 64, "bf16", 0.07240, 0, 0, kTogether},
    {"mlp_small", 64, "tf32", 0.07914, 0, 0, kTogether},
    {"mlp_small", 64, "fp32", 0.08607, 0, 0, kTogether},
    {"mlp", 128, "bf16", 0.09680, 0, 0, kTogether},
    {"mlp", 128, "tf32", 0.1010, 0, 0, kTogether},
    {"mlp", 128, "fp32", 0.1028, 0, 0, kTogether},
    {"transformer_classifier", 64, "bf16", 0.7886, 0, 0,
     "biases of products are rounded in one launch, the loss takes one "
     "(docs/decisions/fused-operations.md)"},
    {"transformer_classifier", 64, "tf32", 1.119, 0, 0, kTensorAttention},
    {"transformer_classifier", 64, "fp32", 1.416, 0, 0},
    {"gpt2_mini", 64, "bf16", 5.681, 0, 0},
    {"gpt2_mini", 64, "tf32", 16.94, 0, 0, kTensorAttention},
    {"gpt2_mini", 64, "fp32", 34.21, 0, 0},
};

}  // namespace

std::span<const Sweep> sweeps() { return kSweeps; }
const Sweep& default_sweep() { return kDefault; }
const Facts& facts() { return kFacts; }
std::span<const MeasuredRow> measured_rows() { return kMeasured; }

}  // namespace trainyard::bench
