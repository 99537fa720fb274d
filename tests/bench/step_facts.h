// tests/bench/step_facts.h: everything that the model of a step's time is told, in one table
// (step_facts.cc), each line with where it comes from. Nothing else in the model may be tuned: who
// changes a kernel changes its line and says why (docs/decisions/0043).
#pragma once

#include <span>
#include <string_view>

namespace trainyard::bench {

/// What a number rests on.
enum class Basis : unsigned char {
  kTimed,       // an algorithm that the first run timed
  kFitted,      // set once so that rows of the first run come out; the line names them
  kBytes,       // bytes that a kernel moves, by its source, at the bandwidth that its loads allow
  kEstimate,    // reckoned and never seen
  kSubmission,  // launches, and what lies outside the recorded step
};
constexpr int kBases = 5;

/// One sweep of a kernel of ours over memory.
struct Sweep {
  std::string_view op;      // of the graph
  std::string_view kernel;  // in kernels/cuda
  // What it reads, then what it writes, separated by spaces:
  //   i0, o1   input 0, output 1: its bytes as stored, 0 where it is left out
  //   4o1      4 bytes for each element of output 1, however it is stored
  //   n1       input 1 brought into 16 bits: 4 read, 2 written, where it is F32 beside 16 bits
  //   f1, F1   a filter, input or output 1, between the parameter's order and the plan's
  //   l0       input 0 once more, where its rows exceed the caches (10,000 elements)
  //   s0       the scores of a head: rows of input 0 by rows of input 1, in the workspace
  //   b2       the images that output 2, a bias's gradient, is the sum of
  std::string_view reads, writes;
  int registers;  // a thread's, as ptxas says: how many threads a multiprocessor holds
  int width;      // elements that one load brings
  int loads;      // loads in flight of one thread
  // Instructions allow no more elements a second of what is written first, or read where nothing
  // is written; 0: they allow more than the memory.
  double giga_elements;
  enum When : unsigned char {
    kAlways,
    kNoSumsInProduct,  // the bias's gradient is not the product's own
    kNotDirect,        // the convolution is not a kernel of our own (kernels/cuda/direct_conv.h)
  } when;
  Basis basis;
  std::string_view source;
};
std::span<const Sweep> sweeps();
/// For ops that the table does not name: each operand once.
const Sweep& default_sweep();

/// A number of the device or of a library, with where it comes from.
struct Fact {
  double value;
  Basis basis;
  std::string_view source;
};
struct Facts {
  Fact multiprocessors, registers, threads;  // of a multiprocessor the last two
  Fact latency_us;                           // from a load to its data
  Fact bandwidth;                            // bytes/s that a kernel with enough loads gets
  Fact submission_us;                        // a kernel in a recorded step beside its bytes
  Fact measuring_us;                         // that a timed algorithm's number has too much
  Fact outside_us;                           // of a recording and its steps, outside of it
  // Attention, FLOP/s by Op::cost, of whole tiles of 64.
  Fact own_attention, own_attention_grad, library_attention;
  Fact library_attention_us;  // and of each plan, which is several kernels
  // cuDNN's runtime-compiled engine 70 for filter gradients bf16 -> F32: it does not split its
  // sums, so each tile of the filter has one multiprocessor.
  Fact engine_70_flops, engine_70_tile;
  // Small convolutions by kernels of our own, FLOP/s, and of each what it waits for.
  Fact direct_half, direct_f32, direct_us;
  // Products and convolutions that were never timed, nor anything alike.
  Fact half_product, tf32_product, f32_product;
  Fact half_convolution, tf32_convolution, f32_convolution;
};
const Facts& facts();

/// A row of the first run (tests/bench/results/gpu_h100_2026-11-22).
struct MeasuredRow {
  std::string_view model;
  int batch;
  std::string_view precision;
  double ms;          // 0: no step within 45 s
  double least, aim;  // samples/s that must be reached, and that are aimed at; 0: none is stated
  // What has been changed since to make it faster; empty: nothing, and so it must come out.
  std::string_view changed = "";
};
std::span<const MeasuredRow> measured_rows();

}  // namespace trainyard::bench
