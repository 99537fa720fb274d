// src/models/families/expected_tensors.h: the tensors of a family's weights, by transformers'
// names.
#pragma once

#include <string_view>

#include "src/models/families/family.h"

namespace trainyard {

struct FamilySizes {
  int64_t vocabulary, layers, width, hidden, heads, kv_heads, head_dim;
  bool qkv_bias, out_bias, mlp_bias, tied, norm_after;
  std::string_view qk_norm;  // none, head or all
};
std::vector<ExpectedTensor> decoder_tensors(const FamilySizes& sizes);

std::vector<ExpectedTensor> gpt2_tensors(int64_t layers, int64_t width, int64_t vocabulary,
                                         int64_t positions);

}  // namespace trainyard
