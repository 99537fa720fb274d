#include "src/data/tokenizers/chat_families.h"

namespace trainyard {
namespace {

/// The families that write <|im_start|>ROLE and the content until <|im_end|>.
constexpr ChatFamily im_family(std::string_view name, std::string_view models,
                               std::string_view default_system,
                               std::array<std::string_view, 4> digests) {
  ChatFamily family{name, models};
  family.system_before = "<|im_start|>system\n";
  family.system_after = "<|im_end|>\n";
  family.user_before = "<|im_start|>user\n";
  family.user_after = "<|im_end|>\n";
  family.answer_before = "<|im_start|>assistant\n";
  family.answer_last = "<|im_end|>";
  family.answer_after = "\n";
  family.default_system = default_system;
  family.digests = digests;
  return family;
}

constexpr ChatFamily qwen3_family() {
  ChatFamily family =
      im_family("qwen3", "Qwen3 that thinks", {}, {"3a82bc090ebd30f1", "873d01a44f450715"});
  family.thoughts = ChatFamily::Thoughts::kQwen;
  return family;
}

constexpr ChatFamily smollm3_family() {
  ChatFamily family = im_family("smollm3", "SmolLM3", {}, {"cc7df52d2458b8ed"});
  family.system = ChatFamily::System::kReasoning;
  return family;
}

/// Llama 3 and its successors.
constexpr ChatFamily llama3_family(std::string_view name, std::string_view models,
                                   ChatFamily::System system,
                                   std::array<std::string_view, 4> digests) {
  ChatFamily family{name, models};
  family.start = "{begin}";
  family.system_before = "<|start_header_id|>system<|end_header_id|>\n\n";
  family.system_after = "<|eot_id|>";
  family.user_before = "<|start_header_id|>user<|end_header_id|>\n\n";
  family.user_after = "<|eot_id|>";
  family.answer_before = "<|start_header_id|>assistant<|end_header_id|>\n\n";
  family.answer_last = "<|eot_id|>";
  family.system = system;
  family.trim = ChatFamily::Trim::kAll;
  family.digests = digests;
  return family;
}

constexpr ChatFamily llama2_family() {
  ChatFamily family{"llama2", "Llama 2"};
  family.system_before = "<<SYS>>\n";
  family.system_after = "\n<</SYS>>\n\n";
  family.user_before = "{begin}[INST] ";
  family.user_after = " [/INST]";
  family.answer_first = " ";
  family.answer_last = " {end}";
  family.order = ChatFamily::Order::kAlternating;
  family.system = ChatFamily::System::kFirstUser;
  family.trim = ChatFamily::Trim::kAll;
  family.digests = {"520eb285de69c4e1"};
  return family;
}

/// Mistral's families differ in blanks and in the place of the system message.
constexpr ChatFamily mistral_family(std::string_view name, std::string_view models,
                                    std::string_view user_before, std::string_view user_after,
                                    std::string_view answer_first, ChatFamily::System system,
                                    std::array<std::string_view, 4> digests) {
  ChatFamily family{name, models};
  family.start = "{begin}";
  family.system_after = "\n\n";
  family.user_before = user_before;
  family.user_after = user_after;
  family.answer_first = answer_first;
  family.answer_last = "{end}";
  family.order = ChatFamily::Order::kAlternating;
  family.system = system;
  family.digests = digests;
  return family;
}

constexpr ChatFamily mistral_v3_family() {
  ChatFamily family =
      mistral_family("mistral-v3", "Mistral 7B v0.3, Large 2407", "[INST] ", "[/INST]", " ",
                     ChatFamily::System::kLastUser, {"972cbb590c2f69c2"});
  family.trim = ChatFamily::Trim::kAnswers;
  return family;
}

constexpr ChatFamily mistral_v7_family(std::string_view name, std::string_view models,
                                       std::string_view blank, std::string_view system_before,
                                       std::string_view user_before,
                                       std::array<std::string_view, 4> digests) {
  ChatFamily family = mistral_family(name, models, user_before, "[/INST]", blank,
                                     ChatFamily::System::kMessage, digests);
  family.system_before = system_before;
  family.system_after = "[/SYSTEM_PROMPT]";
  family.order = ChatFamily::Order::kAny;
  return family;
}

/// The families that write <|user|> in a line of its own.
constexpr ChatFamily line_family(std::string_view name, std::string_view models,
                                 std::string_view start, std::string_view end,
                                 std::array<std::string_view, 4> digests) {
  ChatFamily family{name, models};
  family.start = start;
  family.system_before = "<|system|>\n";
  family.system_after = end;
  family.user_before = "<|user|>\n";
  family.user_after = end;
  family.answer_before = "<|assistant|>\n";
  family.answer_last = "{end}";
  family.answer_after = "\n";
  family.digests = digests;
  return family;
}

constexpr ChatFamily tulu_family(std::string_view name, std::string_view models,
                                 std::string_view start, std::array<std::string_view, 4> digests) {
  ChatFamily family = line_family(name, models, start, "\n", digests);
  family.no_after_at_end = true;
  return family;
}

constexpr ChatFamily granite_family(std::string_view name, std::string_view models,
                                    ChatFamily::System system,
                                    std::array<std::string_view, 4> digests) {
  ChatFamily family{name, models};
  family.system_before = "<|start_of_role|>system<|end_of_role|>";
  family.system_after = "<|end_of_text|>\n";
  family.user_before = "<|start_of_role|>user<|end_of_role|>";
  family.user_after = "<|end_of_text|>\n";
  family.answer_before = "<|start_of_role|>assistant<|end_of_role|>";
  family.answer_last = "<|end_of_text|>";
  family.answer_after = "\n";
  family.system = system;
  family.digests = digests;
  return family;
}

using Place = ChatFamily::System;

constexpr std::string_view kSmolSystem =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr std::string_view kQwen2System = "You are a helpful assistant.";
constexpr std::string_view kQwen25System =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

constexpr auto kFamilies = std::to_array<ChatFamily>({
    im_family("chatml", "many", {}, {"8c0189ba1a13582b", "271a2325f45b00da"}),
    im_family("smollm2", "SmolLM2", kSmolSystem, {"303c3efad9de23cd"}),
    smollm3_family(),
    im_family("qwen2", "Qwen2", kQwen2System, {"bcf86092c39b9aa8"}),
    im_family("qwen2.5", "Qwen2.5", kQwen25System, {"ef79e1e246a424d0"}),
    qwen3_family(),
    im_family("qwen3-instruct", "Qwen3 Instruct 2507", {}, {"7b39c7ec684eec54"}),
    llama2_family(),
    llama3_family("llama3", "Llama 3", Place::kMessage, {"0a74c1de74490277"}),
    llama3_family("llama3.1", "Llama 3.1, 3.2, 3.3", Place::kHeader,
                  {"8040df9b6bc32430", "540d01736fdc12f6"}),
    mistral_family("mistral-v0", "Mistral 7B v0.1, v0.2", "[INST] ", " [/INST]", "", Place::kNone,
                   {"ee9aecdea2d32150"}),
    mistral_family("mistral-v1", "Mistral 7B v0.2, Mixtral", " [INST] ", " [/INST]", " ",
                   Place::kFirstUser, {"2ad60677147fef4a"}),
    mistral_v3_family(),
    mistral_family("mistral-v3-tekken", "Mistral Nemo", "[INST]", "[/INST]", "", Place::kLastUser,
                   {"612224086a237915"}),
    mistral_v7_family("mistral-v7", "Mistral Large 2411", " ", "[SYSTEM_PROMPT] ", "[INST] ",
                      {"747f0aff5c218456"}),
    mistral_v7_family("mistral-v7-tekken", "Mistral Small 3", "", "[SYSTEM_PROMPT]", "[INST]", {}),
    line_family("zephyr", "Zephyr, TinyLlama", {}, "{end}\n", {"43cb4feaef35ce8a"}),
    tulu_family("tulu", "Tulu 2 and 3", {}, {"a9ad824a64553d17"}),
    tulu_family("olmo2", "OLMo 2", "{begin}", {"8a6d40aaba75d382"}),
    granite_family("granite", "Granite 3.0", Place::kMessage, {"6cb358f0fcb6e5b9"}),
    granite_family("granite3.3", "Granite 3.1 to 3.3", Place::kRequired, {"21be4b0c9f419fd5"}),
});

}  // namespace

std::span<const ChatFamily> chat_families() { return kFamilies; }

}  // namespace trainyard
