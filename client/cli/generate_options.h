// client/cli/generate_options.h: what generate and chat share: the options of the next token, and
// text of a model on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/options.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::cli {

struct GenerateFlags {
  int64_t tokens = 256;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  int64_t seed = 0;
};
void add_generate_options(OptionSet& options, GenerateFlags& target);

/// Sets the fields of `request` that the flags name. Usage error: a negative seed.
Status set_generate_fields(const GenerateFlags& flags, v1::GenerateRequest& request);

/// Escapes a model's output for a terminal, which must not interpret it: control bytes are escaped,
/// newlines and tabs stay. Bytes of an incomplete character are kept until the rest arrives.
class TerminalText {
 public:
  std::string add(std::string_view bytes);
  std::string rest();

 private:
  std::string waiting_;
};

}  // namespace trainyard::cli
