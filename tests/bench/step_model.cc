#include "tests/bench/step_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace trainyard::bench {
namespace {

using testing::WorkKind;

constexpr int kWeightsPass = 2;
constexpr int64_t kCachedRow = 10'000;  // elements
constexpr int64_t kAttentionTile = 64;
constexpr int64_t kBlockThreads = 256;

size_t at(Basis basis) { return static_cast<size_t>(basis); }

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(std::stoll(number));
  return numbers;
}

int64_t bytes_of(const std::string& format) { return format == "F32" ? 4 : 2; }

void measure_product(KeyedProblem& p, std::map<std::string, std::vector<int64_t>>& numbers) {
  const auto &s = numbers["sizes"], &b = numbers["batch"];
  const auto m = static_cast<double>(s.at(0)), n = static_cast<double>(s.at(1)),
             k = static_cast<double>(s.at(2)), batch = static_cast<double>(b.at(0));
  p.flops = 2 * batch * m * n * k;
  const auto& t = numbers["transposed"];
  const bool transposes_a = t.at(0) != 0, transposes_b = t.at(1) != 0;
  for (const int64_t side : {s[transposes_a ? 0 : 2], s[transposes_b ? 2 : 1], s[1]}) {
    p.is_odd |= side % 8 != 0;
  }
  p.bytes = batch * ((m * k + k * n) * static_cast<double>(bytes_of(p.operands)) +
                     m * n * static_cast<double>(bytes_of(p.result)));
}

void measure_convolution(KeyedProblem& p, std::map<std::string, std::vector<int64_t>>& numbers) {
  const auto &x = numbers["image"], &w = numbers["filters"], &strides = numbers["strides"],
             &pads = numbers["pads"], &dilations = numbers["dilations"];
  const auto outputs = [&](size_t axis) {
    const int64_t window = dilations.at(axis) * (w.at(2 + axis) - 1) + 1;
    return (x.at(2 + axis) + pads.at(axis) + pads.at(2 + axis) - window) / strides.at(axis) + 1;
  };
  p.filter = w;
  const int64_t output = x.at(0) * w.at(0) * outputs(0) * outputs(1);
  const int64_t image = x.at(0) * x.at(1) * x.at(2) * x.at(3);
  const int64_t filter = w.at(0) * w.at(1) * w.at(2) * w.at(3);
  p.flops = 2.0 * static_cast<double>(output) * static_cast<double>(filter / w.at(0));
  p.bytes = static_cast<double>((image + filter + output) * bytes_of(p.operands));
}

/// Returns the engine of a choice such as "cudnn engine=70 2=4"; -1: not a choice of cuDNN's.
int engine_of(const std::string& choice) {
  constexpr std::string_view kWord = "engine=";
  const size_t found = choice.find(kWord);
  if (found == choice.npos) return -1;
  int engine = -1;
  std::from_chars(choice.data() + found + kWord.size(), choice.data() + choice.size(), engine);
  return engine;
}

std::string engine_class(const KeyedProblem& p, int engine) {
  return std::to_string(engine) + " pass " + std::to_string(p.pass) + " " + p.operands +
         (p.tf32 ? " tf32" : "");
}

/// Returns the key without the workspace.
std::string problem_of(std::string key) {
  const size_t word = key.find(" workspace=");
  if (word != key.npos) key.erase(word, std::min(key.find(' ', word + 1), key.size()) - word);
  return key;
}

double rate_us(double flops, double bytes, double rate, const Facts& f = facts()) {
  return 1e6 * std::max(flops / rate, bytes / f.bandwidth.value) + f.submission_us.value;
}

Charge stated_rate(const KeyedProblem& p) {
  std::ostringstream how;
  how << "not timed: " << (facts().*rate_of(p)).value * 1e-12 << " TFLOP/s, or its bytes";
  return {us_by_rate(p, facts()), Basis::kEstimate, how.str()};
}

/// Returns whether a convolution may run on our own kernel, which is then the first choice.
bool is_direct(const std::string& key) { return key.ends_with(" direct"); }
bool is_direct(const NodeCount& node) {
  return std::ranges::any_of(node.asked,
                             [](const AskedAlgorithm& a) { return is_direct(a.key); }) &&
         node.works.of(WorkKind::kDnn) == 0;
}

/// Returns whether the node is a convolution that ran as a product with a matrix of patches.
bool has_patches(const NodeCount& node) {
  return node.works.of(WorkKind::kDnn) == 0 && !is_direct(node) &&
         std::ranges::any_of(node.asked, [](const AskedAlgorithm& a) {
           if (!a.key.starts_with("convolution")) return false;
           const std::vector<int64_t> filter = parse_algorithm_key(a.key).filter;
           return filter.at(2) * filter.at(3) > 1;
         });
}

/// Returns whether the problem is that of a product with the exact GELU, whose product is a problem
/// of its own (src/runtime/cuda/gelu_product.h).
bool is_gelu(const AskedAlgorithm& a) { return a.key.starts_with("gelu"); }
/// Returns whether the node may run on an engine of cuDNN that computes GELU with the product. The
/// model assumes that timing then chooses it, since it moves fewer bytes; the fakes do not time.
bool has_gelu_engine(const NodeCount& node) { return std::ranges::any_of(node.asked, is_gelu); }
/// Returns whether cuBLASLt computes GELU, by the numbers of Epilogue (cublaslt_matmul.h).
bool has_gelu_epilogue(const NodeCount& node) {
  return std::ranges::any_of(node.asked, [](const AskedAlgorithm& a) {
    return a.key.find(" epilogue=1 ") != a.key.npos || a.key.find(" epilogue=2 ") != a.key.npos ||
           a.key.find(" epilogue=3 ") != a.key.npos;
  });
}

Charge direct_charge(const KeyedProblem& p) {
  const Facts& f = facts();
  const Fact& rate = p.is_half() ? f.direct_half : f.direct_f32;
  std::ostringstream how;
  how << "our own kernel, not run on a GPU: " << rate.value * 1e-12 << " TFLOP/s behind "
      << f.direct_us.value << " us";
  return {f.direct_us.value + 1e6 * p.flops / rate.value, rate.basis, how.str()};
}

/// One multiprocessor sums each tile of the filter's gradient, however long the sums are.
double engine_70_us(const KeyedProblem& p) {
  const Facts& f = facts();
  const auto tiles = [&](int64_t length) {
    return std::ceil(static_cast<double>(length) / f.engine_70_tile.value);
  };
  const double count = tiles(p.filter.at(0)) * tiles(p.filter.at(1)) *
                       static_cast<double>(p.filter[2] * p.filter[3]);
  const double waves = std::ceil(count / f.multiprocessors.value);
  const double share = count / (waves * f.multiprocessors.value);
  return rate_us(p.flops, p.bytes, f.engine_70_flops.value * share);
}

// The following functions compute times of our own kernels (Sweep).

/// A parsed word of Sweep::reads or writes.
struct Word {
  double each = 0;  // bytes of an element; 0: as stored
  char what = 'i';
  const OperandCount* operand = nullptr;  // nullptr: omitted
};
Word word_of(const NodeCount& node, std::string_view text) {
  Word word;
  if (text.front() >= '0' && text.front() <= '9') {
    word.each = text.front() - '0';
    text.remove_prefix(1);
  }
  word.what = text.front();
  const auto index = static_cast<size_t>(text.at(1) - '0');
  const bool is_output = word.what == 'o' || word.what == 'F' || word.what == 'b';
  const auto& operands = is_output ? node.outputs : node.inputs;
  if (index < operands.size() && operands[index].elements > 0) word.operand = &operands[index];
  return word;
}

/// Returns the bytes of the scores of a head with its loss, in the operands' type: rows of x [N, F]
/// by classes, which are the rows of w [K, F]. They are in the workspace.
double scores_bytes(const NodeCount& node) {
  const OperandCount &x = node.inputs.at(0), &w = node.inputs.at(1);
  const auto width = static_cast<double>(w.shape[w.shape.rank() - 1]);
  return static_cast<double>(x.elements) / width * (static_cast<double>(w.elements) / width) *
         (node.touches_half() ? 2 : 4);
}

double word_bytes(const NodeCount& node, std::string_view text) {
  const Word word = word_of(node, text);
  if (word.operand == nullptr) return 0;
  const OperandCount& operand = *word.operand;
  const auto elements = static_cast<double>(operand.elements);
  const bool converts = node.touches_half() && !operand.is_half();
  switch (word.what) {
    case 'i':
    case 'o':
      return word.each > 0 ? word.each * elements : static_cast<double>(operand.bytes);
    case 'n':
      return converts ? 6 * elements : 0;
    case 'f':
    case 'F':
      return node.works.of(WorkKind::kKernel) == 0 ? 0 : (converts ? 6 : 8) * elements;
    case 'l':
      return operand.shape[operand.shape.rank() - 1] > kCachedRow
                 ? static_cast<double>(operand.bytes)
                 : 0;
    case 'b':
      return static_cast<double>(node.inputs.at(2).bytes);
    case 's':
      return scores_bytes(node);
    default:
      throw std::invalid_argument("step_facts.cc: no operand is called " + std::string(text));
  }
}

double words_bytes(const NodeCount& node, std::string_view words) {
  double bytes = 0;
  for (const std::string& word : words_of(words)) bytes += word_bytes(node, word);
  return bytes;
}

double operands_bytes(const std::vector<OperandCount>& operands) {
  return std::accumulate(
      operands.begin(), operands.end(), 0.0,
      [](double sum, const OperandCount& o) { return sum + static_cast<double>(o.bytes); });
}

struct Moved {
  double reads = 0, writes = 0;
  double all() const { return reads + writes; }
};
Moved moved_by(const Sweep& sweep, const NodeCount& node) {
  if (sweep.op.empty()) return {operands_bytes(node.inputs), operands_bytes(node.outputs)};
  return {words_bytes(node, sweep.reads), words_bytes(node, sweep.writes)};
}

/// Returns the bytes a second that a kernel's loads in flight allow (Little's law).
double loads_bandwidth(const Sweep& sweep, int64_t element_bytes) {
  const Facts& f = facts();
  // registers of a block
  const double block = std::ceil(sweep.registers / 8.0) * 8 * kBlockThreads;
  const double threads =
      std::min(std::floor(f.registers.value / block) * kBlockThreads, f.threads.value);
  const auto bytes = static_cast<double>(sweep.width * element_bytes * sweep.loads);
  return f.multiprocessors.value * threads * bytes / (f.latency_us.value * 1e-6);
}

/// Returns the element size of the first tensor that the pass reads.
int64_t element_bytes_of(const Sweep& sweep, const NodeCount& node) {
  if (sweep.op.empty()) return node.touches_half() ? 2 : 4;
  for (const std::string& text : words_of(sweep.reads)) {
    if (word_bytes(node, text) == 0) continue;
    const OperandCount& operand = *word_of(node, text).operand;
    return operand.bytes / operand.elements;
  }
  return node.touches_half() ? 2 : 4;
}

double sweep_us(const Sweep& sweep, const NodeCount& node) {
  const Moved moved = moved_by(sweep, node);
  if (moved.all() == 0) return 0;
  const int64_t element_bytes = element_bytes_of(sweep, node);
  double us = 1e6 * (moved.reads / loads_bandwidth(sweep, element_bytes) +
                     moved.all() / facts().bandwidth.value);
  if (sweep.giga_elements > 0) {
    const std::string first = words_of(sweep.writes.empty() ? sweep.reads : sweep.writes).front();
    if (const OperandCount* counted = word_of(node, first).operand; counted != nullptr) {
      us = std::max(us, static_cast<double>(counted->elements) / sweep.giga_elements * 1e-3);
    }
  }
  return us;
}

bool is_attention(const NodeCount& node) {
  return node.work.op == "Attention" || node.work.op == "AttentionGrad";
}

/// Returns the passes of the node as the fakes submit it, or as the device is assumed to run it.
enum class Runs : uint8_t { kSubmitted, kAssumed };
std::vector<const Sweep*> sweeps_of(const NodeCount& node, Runs runs) {
  const bool by_engine = runs == Runs::kAssumed && has_gelu_engine(node);
  std::vector<const Sweep*> found;
  bool is_named = false;
  const bool sums_in_product = std::ranges::any_of(
      node.asked, [](const AskedAlgorithm& a) { return a.key.find(" epilogue=4 ") != a.key.npos; });
  for (const Sweep& sweep : sweeps()) {
    if (sweep.op != node.work.op) continue;
    is_named = true;
    if (sweep.when == Sweep::kNoSumsInProduct &&
        (sums_in_product || node.outputs.size() < 3 || node.outputs[2].elements == 0)) {
      continue;
    }
    if (sweep.when == Sweep::kNotDirect && is_direct(node)) continue;
    if (sweep.when == Sweep::kPatches && !has_patches(node)) continue;
    if (sweep.when == Sweep::kSeparateGelu && (by_engine || has_gelu_epilogue(node))) continue;
    if (sweep.when == Sweep::kGeluEngine && !by_engine) continue;
    found.push_back(&sweep);
  }
  if (!is_named && !is_attention(node) && node.works.of(WorkKind::kKernel) > 0) {
    found.push_back(&default_sweep());
  }
  return found;
}

Charge attention_charge(const NodeCount& node) {
  const Facts& f = facts();
  const bool is_library = node.works.of(WorkKind::kDnn) > 0;
  const bool is_gradient = node.work.op == "AttentionGrad";
  const Fact& own = node.work.multiplies_tf32
                        ? (is_gradient ? f.tensor_attention_grad : f.tensor_attention)
                        : (is_gradient ? f.own_attention_grad : f.own_attention);
  const Fact& rate = is_library ? f.library_attention : own;
  // y is [N, T, width] and the first operand, as an output or as the gradient's input.
  const Shape& y = (node.work.op == "Attention" ? node.outputs : node.inputs).at(0).shape;
  const int64_t T = y[1], tiles = (T + kAttentionTile - 1) / kAttentionTile;
  const auto flops = static_cast<double>(node.work.cost.flops);
  const double of_all_pairs =
      (node.work.op == "Attention" ? 4.0 : 10.0) * static_cast<double>(y.elements() * T);
  const bool is_causal = flops < 0.75 * of_all_pairs;
  const int64_t tile_pairs = is_causal ? tiles * (tiles + 1) / 2 : tiles * tiles;
  const double share = static_cast<double>(tile_pairs * kAttentionTile * kAttentionTile) /
                       static_cast<double>(T * T);
  const double plans_us =
      static_cast<double>(node.works.of(WorkKind::kDnn)) * f.library_attention_us.value;
  return {1e6 * of_all_pairs * share / rate.value + plans_us, rate.basis, ""};
}

}  // namespace

KeyedProblem parse_algorithm_key(const std::string& key) {
  KeyedProblem p;
  const std::vector<std::string> words = words_of(key);
  if (words.empty() || (words[0] != "matmul" && words[0] != "convolution")) {
    throw std::invalid_argument("no key of an algorithm: " + key);
  }
  p.is_convolution = words[0] == "convolution";
  std::map<std::string, std::vector<int64_t>> numbers;
  for (const std::string& word : words) {
    if (const size_t equals = word.find('='); equals != word.npos) {
      const std::string name = word.substr(0, equals);
      numbers[name] = numbers_of(word.substr(equals + 1));
      if (name == "pass") {
        p.pass = numbers[name].at(0);
      } else if (name == "workspace") {
        p.workspace = numbers[name].at(0);
      } else if (name != "epilogue" && name != "alignment") {
        p.shape += word + " ";
      }
    } else if (const size_t to = word.find('>'); to != word.npos) {
      p.operands = word.substr(0, to);
      p.result = word.substr(to + 1);
    } else if (word == "F32" || word == "bf16" || word == "f16") {
      p.operands = word;
    } else if (word == "tf32") {
      p.tf32 = true;
    } else if (word == "channels_last" || word == "row_major") {
      p.shape += word;
    }
  }
  try {
    p.is_convolution ? measure_convolution(p, numbers) : measure_product(p, numbers);
  } catch (const std::out_of_range&) {
    throw std::invalid_argument("no key of an algorithm: " + key);
  }
  return p;
}

Fact Facts::*rate_of(const KeyedProblem& p) {
  if (p.is_convolution) {
    return p.is_half() ? &Facts::half_convolution
           : p.tf32    ? &Facts::tf32_convolution
                       : &Facts::f32_convolution;
  }
  return p.is_half() ? &Facts::half_product : p.tf32 ? &Facts::tf32_product : &Facts::f32_product;
}

double us_by_rate(const KeyedProblem& p, const Facts& facts) {
  return rate_us(p.flops, p.bytes, (facts.*rate_of(p)).value, facts);
}

AlgorithmTimes::AlgorithmTimes(const std::filesystem::path& file) {
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("choices")) {
    throw std::runtime_error(file.string() + ": not a file of algorithms");
  }
  for (const auto& [key, entry] : json["choices"].items()) {
    entries_[key] = {parse_algorithm_key(key), engine_of(entry.at("choice").get<std::string>()),
                     entry.at("taken_us").get<double>()};
  }
  for (const auto& [key, entry] : entries_) {
    by_shape_[entry.problem.shape].push_back(&entry);
    by_problem_[problem_of(key)] = &entry;
    if (entry.us == 0 || entry.engine < 0) continue;
    Rate& rate = by_engine_[engine_class(entry.problem, entry.engine)];
    rate.flops += entry.problem.flops;
    rate.us += entry.us;
  }
}

const AlgorithmTimes::Entry* AlgorithmTimes::find(const std::string& key) const {
  if (const auto exact = entries_.find(key); exact != entries_.end()) return &exact->second;
  const auto other = by_problem_.find(problem_of(key));
  if (other == by_problem_.end()) return nullptr;
  const Entry& e = *other->second;
  const bool fits = e.problem.workspace <= parse_algorithm_key(key).workspace;
  return e.us > 0 && e.engine != 0 && fits ? &e : nullptr;
}

const AlgorithmTimes::Entry* AlgorithmTimes::find_alike(const KeyedProblem& p, int64_t pass,
                                                        const std::string& operands,
                                                        bool tf32) const {
  const auto found = by_shape_.find(p.shape);
  if (found == by_shape_.end()) return nullptr;
  for (const Entry* e : found->second) {
    const KeyedProblem& q = e->problem;
    if (e->us == 0 || q.is_convolution != p.is_convolution || q.pass != pass ||
        q.operands != operands || q.tf32 != tf32) {
      continue;
    }
    // cuDNN's naive engine is chosen only if the workspace allows no other.
    if (e->engine == 0 && q.workspace != p.workspace) continue;
    return e;
  }
  return nullptr;
}

double AlgorithmTimes::by_other_passes(const KeyedProblem& p) const {
  if (!p.is_convolution || p.pass != kWeightsPass || !p.is_half()) return 0;
  const Entry* const weights = find_alike(p, kWeightsPass, "F32", true);
  if (weights == nullptr) return 0;
  double half = 0, tf32 = 0;
  for (int64_t pass = 0; pass < kWeightsPass; ++pass) {
    const Entry *const of_half = find_alike(p, pass, p.operands, false), *const of_tf32 =
                                                                             find_alike(p, pass,
                                                                                        "F32",
                                                                                        true);
    if (of_half == nullptr || of_tf32 == nullptr) continue;
    half += of_half->us;
    tf32 += of_tf32->us;
  }
  return tf32 > 0 ? weights->us * half / tf32 : 0;
}

Charge AlgorithmTimes::charge(const std::string& key) const {
  const auto timed = [](double us) {
    return std::max(us - facts().measuring_us.value, facts().submission_us.value);
  };
  const KeyedProblem p = parse_algorithm_key(key);
  if (const Entry* const found = find(key); found != nullptr) {
    const Entry& e = *found;
    if (e.us > 0) return {timed(e.us), Basis::kTimed, ""};
    if (p.pass == kWeightsPass && p.is_half() && e.engine == 70) {
      return {engine_70_us(p), Basis::kFitted, "engine 70, not timed: by tiles of the filter"};
    }
    if (const auto rate = by_engine_.find(engine_class(p, e.engine)); rate != by_engine_.end()) {
      const double flops_a_second = rate->second.flops / rate->second.us * 1e6;
      return {rate_us(p.flops, p.bytes, flops_a_second), Basis::kEstimate,
              "not timed: as the timed problems of engine " + std::to_string(e.engine)};
    }
  }
  if (is_direct(key)) return direct_charge(p);
  if (const Entry* alike = find_alike(p, p.pass, p.operands, p.tf32); alike != nullptr) {
    return {timed(alike->us), Basis::kEstimate, "not timed: as the same problem otherwise ended"};
  }
  if (const double us = by_other_passes(p); us > 0) {
    return {timed(us), Basis::kEstimate, "not timed: TF32's time by what 16 bits gain elsewhere"};
  }
  return stated_rate(p);
}

std::vector<std::string> AlgorithmTimes::taken(const std::vector<AskedAlgorithm>& asked) const {
  struct Way {
    std::string key;
    bool is_recorded = false;
  };
  std::vector<std::string> problems;  // problems in the order of the requests
  std::map<std::string, Way> ways;
  int64_t products = 0;
  for (const AskedAlgorithm& a : asked) {
    const KeyedProblem p = parse_algorithm_key(a.key);
    // Two products of one node are two problems, even if their sizes are equal.
    const std::string problem = p.is_convolution ? p.shape + std::to_string(p.pass)
                                                 : "product " + std::to_string(products++);
    const auto [way, is_new] = ways.try_emplace(problem);
    if (is_new) problems.push_back(problem);
    const bool is_recorded = find(a.key) != nullptr;
    if (way->second.is_recorded || (!is_recorded && !a.is_supported)) continue;
    way->second = {a.key, is_recorded};
  }
  std::vector<std::string> keys;
  for (const std::string& problem : problems) {
    if (!ways[problem].key.empty()) keys.push_back(ways[problem].key);
  }
  return keys;
}

double OpPrediction::all_us() const { return std::accumulate(us.begin(), us.end(), 0.0); }
double StepPrediction::ms() const { return std::accumulate(us.begin(), us.end(), 0.0) * 1e-3; }

namespace {

/// Returns the requests of the way in which the node ran. A convolution may run as a product, and
/// has then requested algorithms for both ways.
std::vector<AskedAlgorithm> of_the_way(const NodeCount& node) {
  std::vector<AskedAlgorithm> asked = node.asked;
  std::erase_if(asked, is_gelu);
  const auto is_convolution = [](const AskedAlgorithm& a) {
    return parse_algorithm_key(a.key).is_convolution;
  };
  if (std::ranges::none_of(asked, is_convolution) || is_direct(node)) return asked;
  const bool by_product = node.works.of(WorkKind::kDnn) == 0;
  std::erase_if(asked, [&](const AskedAlgorithm& a) { return is_convolution(a) == by_product; });
  return asked;
}

/// Returns how often each product of a node runs: once, or once for each chunk of its rows.
double repeats(const NodeCount& node) {
  const auto products = std::ranges::count_if(node.asked, [](const AskedAlgorithm& a) {
    return !is_gelu(a) && !parse_algorithm_key(a.key).is_convolution;
  });
  const int64_t ran = node.works.of(WorkKind::kProduct);
  return products == 0 || ran <= products
             ? 1
             : static_cast<double>(ran) / static_cast<double>(products);
}

double sum_of(const TimeByBasis& us) { return std::accumulate(us.begin(), us.end(), 0.0); }
void add_to(TimeByBasis& sum, const TimeByBasis& more) {
  for (size_t basis = 0; basis < sum.size(); ++basis) sum[basis] += more[basis];
}

/// The longest path through a step of two lanes (step_model.h).
class LongestPath {
 public:
  void add(const LaneStep& step, const TimeByBasis& us) {
    const bool is_side = step.lane == Lane::kSide;
    TimeByBasis &own = is_side ? side_ : main_, &other = is_side ? main_ : side_;
    if (step.waits_for_all()) wait(own, other);
    add_to(own, us);
    (is_side ? side_bytes_us_ : main_bytes_us_) += us[at(Basis::kBytes)];
  }
  TimeByBasis end() const {
    TimeByBasis longest = main_;
    wait(longest, side_);
    longest[at(Basis::kBytes)] += std::min(main_bytes_us_, side_bytes_us_);
    return longest;
  }

 private:
  static void wait(TimeByBasis& lane, const TimeByBasis& other) {
    if (sum_of(other) > sum_of(lane)) lane = other;
  }
  TimeByBasis main_{}, side_{};  // the longest path to the end of each lane
  double main_bytes_us_ = 0, side_bytes_us_ = 0;
};

}  // namespace

double moved_bytes(const NodeCount& node, const AlgorithmTimes& times) {
  if (node.works.all() == 0) return 0;  // a view: its result is in its operand's memory
  double bytes = 0;
  for (const Sweep* sweep : sweeps_of(node, Runs::kSubmitted)) {
    bytes += moved_by(*sweep, node).all();
  }
  for (const std::string& key : times.taken(of_the_way(node))) {
    bytes += repeats(node) * parse_algorithm_key(key).bytes;
  }
  if (is_attention(node)) bytes += operands_bytes(node.inputs) + operands_bytes(node.outputs);
  return bytes;
}

TimeByBasis node_us(const NodeCount& node, const AlgorithmTimes& times) {
  TimeByBasis us{};
  if (node.works.all() == 0) return us;
  const auto add = [&](Basis basis, double more) { us[at(basis)] += more; };
  const bool by_engine = has_gelu_engine(node);
  bool is_first = true;  // the product that an engine computes with GELU
  for (const std::string& key : times.taken(of_the_way(node))) {
    const Charge charge = times.charge(key);
    const bool is_assumed = by_engine && std::exchange(is_first, false);
    add(is_assumed ? Basis::kEstimate : charge.basis, repeats(node) * charge.us);
  }
  if (is_attention(node)) {
    const Charge charge = attention_charge(node);
    add(charge.basis, charge.us);
  }
  for (const Sweep* sweep : sweeps_of(node, Runs::kAssumed)) {
    add(sweep->basis, sweep_us(*sweep, node));
  }
  const int64_t own = node.works.all() - node.works.of(WorkKind::kProduct) -
                      node.works.of(WorkKind::kDnn) - (by_engine ? 1 : 0);
  add(Basis::kSubmission, static_cast<double>(own) * facts().submission_us.value);
  return us;
}

StepPrediction predict(const StepCount& step, const AlgorithmTimes& times) {
  StepPrediction p;
  LongestPath path;
  for (const NodeCount& node : step.nodes) {
    OpPrediction& op = p.by_op[std::string(node.work.op)];
    ++op.nodes;
    op.works += node.works.all();
    if (node.works.all() == 0) continue;
    op.bytes += moved_bytes(node, times);
    const TimeByBasis us = node_us(node, times);
    add_to(op.us, us);
    add_to(p.us, us);
    path.add(node.at, us);
    for (const std::string& key : times.taken(of_the_way(node))) {
      const Charge charge = times.charge(key);
      if (!charge.how.empty()) p.not_timed[key] = charge.how;
    }
    for (const AskedAlgorithm& a : node.asked) {
      if (is_gelu(a)) p.not_timed[a.key] = "not timed: as the product alone, and one operand more";
    }
    for (const Sweep* sweep : sweeps_of(node, Runs::kAssumed)) {
      if (sweep == &default_sweep()) p.unknown_ops.emplace(node.work.op);
    }
  }
  const TimeByBasis all = std::exchange(p.us, path.end());
  for (size_t basis = 0; basis < all.size(); ++basis) {
    p.by_op["concurrently in the side lane"].us[basis] = p.us[basis] - all[basis];
  }
  const auto submit = [&](const char* what, double works, double us) {
    OpPrediction& op = p.by_op[what];
    op.works = std::llround(works);
    op.us[at(Basis::kSubmission)] = us;
    p.us[at(Basis::kSubmission)] += us;
  };
  const double around = step.around_nodes(), together = static_cast<double>(step.together);
  submit("rows, inputs and results", around, around * facts().submission_us.value);
  submit("outside the recording", static_cast<double>(step.outside) / together,
         facts().outside_us.value / together);
  return p;
}

std::filesystem::path first_run_algorithms() {
  return std::filesystem::path(TRAINYARD_SOURCE_DIR) /
         "tests/bench/results/gpu_h100_2026-11-22/algorithms.json";
}

}  // namespace trainyard::bench
