// src/inference/prompt.h: what a language model continues.
#pragma once

#include <string>
#include <vector>

#include "src/data/tokenizers/chat_template.h"

namespace trainyard {

/// A text, or the messages of a chat, whose next answer is generated.
struct Prompt {
  std::string text;
  std::vector<Message> messages = {};
};

}  // namespace trainyard
