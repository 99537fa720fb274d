// tests/bench/step_facts.h: all inputs of the model of a step's time, in one table (step_facts.cc),
// each line with its source. Nothing else in the model may be tuned: a change to a kernel must
// change its line and state why (docs/decisions/model-of-gpu-steps.md).
#pragma once

#include <span>
#include <string_view>

namespace trainyard::bench {

/// The basis of a number.
enum class Basis : unsigned char {
  kTimed,       // an algorithm that the first run timed
  kFitted,      // set once so that it reproduces rows of the first run, which the line names
  kBytes,       // bytes that a kernel moves according to its source, at the bandwidth that its
                // loads allow
  kEstimate,    // calculated, never measured
  kSubmission,  // launches, and work outside the recorded step
};
constexpr int kBases = 5;

/// One pass of our own kernel over memory.
struct Sweep {
  std::string_view op;      // the op's name in the graph
  std::string_view kernel;  // the kernel's name in kernels/cuda
  // The tensors that the pass reads, then those that it writes, separated by spaces:
  //   i0, o1   input 0, output 1: its bytes as stored, 0 if it is omitted
  //   4o1      4 bytes for each element of output 1, however it is stored
  //   n1       input 1 converted to 16 bits: 4 read, 2 written, if it is F32 among 16-bit tensors
  //   f1, F1   a filter, input or output 1, between the parameter's order and the plan's
  //   l0       input 0 once more, if its rows exceed the caches (10,000 elements)
  //   s0       the scores of a head: rows of input 0 by rows of input 1, in the workspace
  //   b2       the images whose sum is output 2, a bias's gradient
  std::string_view reads, writes;
  int registers;  // registers of a thread as reported by ptxas, which limit the resident threads
  int width;      // elements of one load
  int loads;      // loads that a thread has in flight
  // The limit by instructions, in 10^9 elements a second of the first tensor written, or read if
  // nothing is written; 0: memory is the limit.
  double giga_elements;
  enum When : unsigned char {
    kAlways,
    kNoSumsInProduct,  // the bias's gradient is not computed by the product
    kNotDirect,        // the convolution is not our own kernel (kernels/cuda/direct_conv.h)
    kPatches,          // the convolution is a product with a matrix of patches
    kSeparateGelu,     // GELU is a kernel of its own behind the product
    kGeluEngine,       // an engine of cuDNN computes the product with GELU, for which it also reads
                       // or writes these operands (src/runtime/cuda/gelu_product.h)
  } when;
  Basis basis;
  std::string_view source;
};
std::span<const Sweep> sweeps();
/// Returns the sweep for ops that are not in the table: it moves each operand once.
const Sweep& default_sweep();

/// A number of the device or of a library, with its source.
struct Fact {
  double value;
  Basis basis;
  std::string_view source;
};
struct Facts {
  Fact multiprocessors, registers, threads;  // registers and threads: of one multiprocessor
  Fact latency_us;                           // from a load to its data
  Fact bandwidth;                            // bytes/s of a kernel with enough loads
  Fact submission_us;                        // per kernel of a recorded step, without its bytes
  Fact measuring_us;                         // the excess in the measured time of a timed algorithm
  Fact outside_us;                           // time of a submission outside the recording
  // Attention: FLOP/s by Op::cost, for whole tiles of 64.
  Fact own_attention, own_attention_grad;        // in F32
  Fact tensor_attention, tensor_attention_grad;  // in TF32
  Fact library_attention;
  Fact library_attention_us;  // launch time of each plan, which has several kernels
  // cuDNN's runtime-compiled engine 70 for filter gradients bf16 -> F32. It does not split its
  // sums, so one multiprocessor computes each tile of the filter.
  Fact engine_70_flops, engine_70_tile;
  // Small convolutions by our own kernels: FLOP/s, and the fixed wait of each.
  Fact direct_half, direct_f32, direct_us;
  // Products and convolutions for which neither the problem nor a similar one was timed.
  Fact half_product, tf32_product, f32_product;
  Fact half_convolution, tf32_convolution, f32_convolution;
};
const Facts& facts();

/// A measured row of the first run (tests/bench/results/gpu_h100_2026-11-22).
struct MeasuredRow {
  std::string_view model;
  int batch;
  std::string_view precision;
  double ms;          // 0: no step within 45 s
  double least, aim;  // samples/s: the required minimum, and the goal; 0: none
  // Changes since the first run that make the step faster. If empty, there are none, so the model
  // must reproduce the time.
  std::string_view changed = "";
};
std::span<const MeasuredRow> measured_rows();

}  // namespace trainyard::bench
