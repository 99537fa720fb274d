#include "src/pretrained/gguf/gguf_tensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "src/base/half.h"
#include "src/base/text.h"
#include "src/pretrained/gguf/rope_factors.h"

namespace trainyard {
namespace {

using Order = MappedTensor::Order;

struct GgufName {
  std::string_view library, file;
  Order order = Order::kSame;
};

/// Names outside of the layers.
constexpr std::array kOuterNames = std::to_array<GgufName>({
    {"model.embed_tokens.", "token_embd."},
    {"model.norm.", "output_norm."},
    {"lm_head.", "output."},
    {"transformer.wte.", "token_embd."},
    {"transformer.wpe.", "position_embd."},
    {"transformer.ln_f.", "output_norm."},
});

/// Names after "model.layers.3." or "transformer.h.3.", and after "blk.3.".
constexpr std::array kLayerNames = std::to_array<GgufName>({
    {"input_layernorm.", "attn_norm."},
    {"self_attn.q_proj.", "attn_q.", Order::kPaired},
    {"self_attn.k_proj.", "attn_k.", Order::kPaired},
    {"self_attn.v_proj.", "attn_v."},
    {"self_attn.o_proj.", "attn_output."},
    {"self_attn.q_norm.", "attn_q_norm."},
    {"self_attn.k_norm.", "attn_k_norm."},
    {"post_attention_layernorm.", "ffn_norm."},
    {"post_feedforward_layernorm.", "post_ffw_norm."},
    {"mlp.gate_proj.", "ffn_gate."},
    {"mlp.up_proj.", "ffn_up."},
    {"mlp.down_proj.", "ffn_down."},
    {"ln_1.", "attn_norm."},
    {"attn.c_attn.", "attn_qkv.", Order::kTransposed},
    {"attn.c_proj.", "attn_output.", Order::kTransposed},
    {"ln_2.", "ffn_norm."},
    {"mlp.c_fc.", "ffn_up.", Order::kTransposed},
    {"mlp.c_proj.", "ffn_down.", Order::kTransposed},
});

struct FoundName {
  std::string name;  // in the file
  Order order = Order::kSame;
};

std::optional<FoundName> find_name(std::span<const GgufName> names, std::string_view name,
                                   const std::string& before) {
  for (const GgufName& n : names) {
    if (!name.starts_with(n.library)) continue;
    return FoundName{before + std::string(n.file) + std::string(name.substr(n.library.size())),
                     n.order};
  }
  return std::nullopt;
}

/// Returns the name that a tensor of the library has in the file.
std::optional<FoundName> name_in_file(std::string_view name, bool norm_after) {
  for (const std::string_view layers : {"model.layers.", "transformer.h."}) {
    if (!name.starts_with(layers)) continue;
    const std::string_view rest = name.substr(layers.size());
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const std::string before = "blk." + std::string(rest.substr(0, dot)) + ".";
    const std::string_view inner = rest.substr(dot + 1);
    if (norm_after && inner == "post_attention_layernorm.weight") {
      return FoundName{before + "post_attention_norm.weight"};
    }
    return find_name(kLayerNames, inner, before);
  }
  return find_name(kOuterNames, name, "");
}

Shape shape_in_file(const ExpectedTensor& tensor, Order order) {
  if (order != Order::kTransposed || tensor.shape.rank() != 2) return tensor.shape;
  return Shape{tensor.shape[1], tensor.shape[0]};
}

Result<MappedTensor> map_tensor(const GgufFile& file, const GgufArchitecture& architecture,
                                const LanguageModel& model, const ExpectedTensor& expected) {
  const auto found = name_in_file(expected.name, model.family == "olmo2");
  if (!found) {
    return gguf_error("tensor " + quoted_value(expected.name), "has no name in GGUF files");
  }
  const std::string what = "tensor " + quoted_value(found->name);
  MappedTensor mapped{expected.name, expected.shape, file.find_tensor(found->name)};
  if (mapped.source == nullptr) return gguf_error(what, "is missing");
  const Shape shape = shape_in_file(expected, found->order);
  if (mapped.source->shape != shape) {
    return gguf_error(what, "has the shape " + mapped.source->shape.to_string() + ", expected " +
                                shape.to_string() + " by the settings of " +
                                std::string(architecture.name));
  }
  if (found->order == Order::kPaired && architecture.pairs_rotary) {
    mapped.order = Order::kPaired;
    mapped.head_dim = model.network.parameters.get_int("head_dim", 1);
    if (mapped.head_dim % 2 != 0) {
      return gguf_error(what, "has heads of " + std::to_string(mapped.head_dim) +
                                  " numbers, expected an even number");
    }
  }
  if (found->order == Order::kTransposed && shape.rank() == 2) mapped.order = Order::kTransposed;
  return mapped;
}

/// GPT-2's head is its table of tokens. Some files have it twice.
bool is_tied_head(const GgufFile& file, const LanguageModel& model, const GgufTensor& tensor) {
  if (!model.tied_head || tensor.name != "output.weight") return false;
  const GgufTensor* const table = file.find_tensor("token_embd.weight");
  return table != nullptr && table->type == tensor.type &&
         std::ranges::equal(table->bytes, tensor.bytes);
}

template <auto kNarrow>
bool has_all(std::span<const float> numbers) {
  return std::ranges::all_of(numbers, [](float number) { return kNarrow(number).has_value(); });
}

}  // namespace

Result<std::vector<MappedTensor>> map_tensors(const GgufFile& file,
                                              const GgufArchitecture& architecture,
                                              const LanguageModel& model) {
  std::vector<MappedTensor> tensors;
  std::set<const GgufTensor*> used;
  for (const ExpectedTensor& expected : model.tensors) {
    ASSIGN_OR_RETURN(MappedTensor mapped, map_tensor(file, architecture, model, expected));
    used.insert(mapped.source);
    tensors.push_back(std::move(mapped));
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.contains(&tensor) || tensor.name == kRopeFactorsTensor) continue;
    if (is_tied_head(file, model, tensor)) continue;
    return make_error(ErrorCode::kInvalidArgument, "MODEL_UNSUPPORTED",
                      "tensor " + quoted_value(tensor.name) +
                          " is not of the network that the settings of " +
                          std::string(architecture.name) + " describe");
  }
  return tensors;
}

TensorNumbers::TensorNumbers(const MappedTensor& tensor)
    : tensor_(tensor),
      rows_(tensor.shape.elements() / tensor.shape[tensor.shape.rank() - 1]),
      row_length_(tensor.shape[tensor.shape.rank() - 1]) {
  if (tensor.order != Order::kTransposed) return;
  whole_.resize(static_cast<size_t>(tensor.shape.elements()));
  widen_blocks(*tensor.source->type, tensor.source->bytes, whole_);
}

void TensorNumbers::read_source_row(int64_t row, std::span<float> out) const {
  const GgufTensor& source = *tensor_.source;
  const auto bytes =
      static_cast<size_t>(source.row_length() / source.type->block * source.type->bytes);
  widen_blocks(*source.type, source.bytes.subspan(static_cast<size_t>(row) * bytes, bytes), out);
}

void TensorNumbers::read_row(int64_t row, std::span<float> out) const {
  if (tensor_.order == Order::kTransposed) {
    for (int64_t i = 0; i < row_length_; ++i) {
      out[static_cast<size_t>(i)] = whole_[static_cast<size_t>(i * rows_ + row)];
    }
    return;
  }
  if (tensor_.order == Order::kSame) return read_source_row(row, out);
  const int64_t half = tensor_.head_dim / 2;
  const auto in_source = [&](int64_t here) {
    const int64_t inside = here % tensor_.head_dim;
    return here - inside + 2 * (inside % half) + inside / half;
  };
  if (tensor_.shape.rank() > 1) return read_source_row(in_source(row), out);
  std::vector<float> bias(out.size());
  read_source_row(0, bias);
  for (int64_t i = 0; i < row_length_; ++i) {
    out[static_cast<size_t>(i)] = bias[static_cast<size_t>(in_source(i))];
  }
}

std::string narrowest_dtype(const MappedTensor& tensor) {
  const std::string_view type = tensor.source->type->name;
  if (type == "F16" || type == "BF16") return std::string(type);
  bool bf16 = true, f16 = true;
  // The order does not matter here.
  const GgufTensor& source = *tensor.source;
  std::vector<float> numbers(static_cast<size_t>(source.row_length()));
  const size_t bytes = source.bytes.size() / static_cast<size_t>(source.rows());
  for (int64_t row = 0; row < source.rows() && (bf16 || f16); ++row) {
    widen_blocks(*source.type, source.bytes.subspan(static_cast<size_t>(row) * bytes, bytes),
                 numbers);
    bf16 = bf16 && has_all<exact_bf16>(numbers);
    f16 = f16 && has_all<exact_f16>(numbers);
  }
  return bf16 ? "BF16" : f16 ? "F16" : "F32";
}

void append_numbers(std::span<const float> numbers, std::string_view dtype, std::string& out) {
  if (dtype == "F32") {
    const auto bytes = std::as_bytes(numbers);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  for (const float number : numbers) {
    const auto narrow = dtype == "BF16" ? exact_bf16(number) : exact_f16(number);
    TRAINYARD_CHECK(narrow.has_value(), "the type has all numbers of the tensor");
    out.push_back(static_cast<char>(*narrow & 0xff));
    out.push_back(static_cast<char>(*narrow >> 8));
  }
}

}  // namespace trainyard
