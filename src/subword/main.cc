// trainyard-tokenizer: learns the pieces of a subword tokenizer with SentencePiece.
//
//   trainyard-tokenizer bpe|unigram PIECES_MAX < sentences > model
//
// Reads one sentence per line. It is a separate program, because SentencePiece includes another
// version of Protobuf than the service: in one process, the version loaded first would be used for
// both. Also, on a fatal error the library ends its process, which must not be the service's.
//
// The same sentences give the same bytes: nothing is random, and the number of threads, which
// determines the order of sums, is fixed.
#include <sentencepiece_trainer.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace {

class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines() { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !std::getline(std::cin, line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string line_;
  bool done_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == 1) return 1;  // the parent ended before prctl() took effect
  if (argc != 3) {
    std::fputs("usage: trainyard-tokenizer bpe|unigram PIECES_MAX < sentences > model\n", stderr);
    return 2;
  }
  std::ios::sync_with_stdio(false);
  Lines lines;
  std::string model;
  const auto trained = sentencepiece::SentencePieceTrainer::Train(
      {
          {"model_type", argv[1]},
          {"vocab_size", argv[2]},
          {"hard_vocab_limit", "false"},  // a short text has fewer pieces than vocab_size
          {"byte_fallback", "true"},
          // Decoding must give the original text unchanged.
          {"normalization_rule_name", "identity"},
          {"add_dummy_prefix", "false"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"unk_id", "0"},
          {"bos_id", "-1"},
          {"eos_id", "-1"},
          {"pad_id", "-1"},
          {"num_threads", "4"},
          {"minloglevel", "3"},
      },
      &lines, &model);
  if (!trained.ok()) {
    std::fputs(trained.message(), stderr);
    return 1;
  }
  return std::fwrite(model.data(), 1, model.size(), stdout) == model.size() &&
                 std::fflush(stdout) == 0
             ? 0
             : 1;
}
