// Sampling and log-probabilities.
#include "digest_cases.h"

// Linked in place of the C library's log, whose last bit is its own: results then show the sum that log is taken of.
extern "C" double __wrap_log(double x) { return x; }

namespace octavo::digest {

namespace {

constexpr int32_t kTop = 5;

// What a kernel writes.
struct Results {
  std::vector<int32_t> token_ids, ranks, top_token_ids;
  std::vector<float> logprobs, top_logprobs;
  std::vector<uint8_t> failed;

  explicit Results(int32_t num_rows)
      : token_ids(static_cast<size_t>(num_rows)),
        ranks(token_ids.size()),
        top_token_ids(token_ids.size() * kTop),
        logprobs(token_ids.size()),
        top_logprobs(token_ids.size() * kTop),
        failed(token_ids.size()) {}

  LogprobArrays arrays() {
    return {logprobs.data(), ranks.data(), top_token_ids.data(), top_logprobs.data(), failed.data()};
  }

  Digest digest() const {
    Digest digest;
    digest.add_integers(std::span<const int32_t>(token_ids));
    digest.add_integers(std::span<const int32_t>(ranks));
    digest.add_integers(std::span<const int32_t>(top_token_ids));
    digest.add(logprobs);
    digest.add(top_logprobs);
    digest.add_integers(std::span<const uint8_t>(failed));
    return digest;
  }
};

void run_logprobs_case(Machine& machine, const std::string& name, int32_t vocab_size,
                       const std::vector<float>& logits) {
  const int32_t num_rows = static_cast<int32_t>(logits.size()) / vocab_size;
  Random random(static_cast<uint64_t>(vocab_size));
  Results results(num_rows);
  for (int32_t& token : results.token_ids) token = random.below(vocab_size);
  const LogprobsOp op{logits.data(), num_rows, vocab_size, kTop, results.token_ids.data(), results.arrays()};
  machine.several.run([&](Worker& worker) { machine.kernels.logprobs(op, worker); },
                      machine.kernels.sample_scratch_bytes(vocab_size));
  report("logprobs/" + name + "/vocab=" + std::to_string(vocab_size), results.digest());
}

// One row's way to choose. Rows with penalties, bias or bans get random ones.
struct Choice {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
  bool penalties, bias, bans, mask;
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {0.0f, 0, 1.0f, 0.0f, false, false, false, false}, {0.0f, 0, 1.0f, 0.0f, true, true, true, true},
      {1.0f, 0, 1.0f, 0.0f, false, false, false, false}, {0.3f, 0, 1.0f, 0.0f, true, false, false, true},
      {1.7f, 40, 1.0f, 0.0f, false, false, true, false}, {1.0f, 1, 1.0f, 0.0f, false, false, false, false},
      {0.9f, 0, 0.9f, 0.0f, false, true, false, true},  {2.5f, 0, 0.999f, 0.0f, true, true, false, false},
      {0.8f, 100, 0.5f, 0.0f, true, false, true, true}, {1.0f, 0, 1.0f, 0.1f, false, false, false, false},
      {1.3f, 30, 0.8f, 0.02f, true, true, true, false},  {0.01f, 0, 0.95f, 0.0f, false, false, false, true},
  };
  return all;
}

// The arrays behind a SampleOp, a row per choice.
struct Batch {
  std::vector<float> temperature, top_p, min_p, repetition, frequency, presence, bias_values;
  std::vector<int32_t> top_k, choice_indices, positions, penalty_rows, output_counts;
  std::vector<int32_t> bias_starts{0}, bias_token_ids, banned_starts{0}, banned_token_ids;
  std::vector<int32_t> allowed_rows;
  std::vector<uint32_t> allowed_tokens;
  std::vector<uint64_t> seeds;
  std::vector<uint8_t> prompt_tokens;

  Batch(Random& random, int32_t vocab_size) {
    for (const Choice& choice : choices()) add(random, choice, vocab_size);
  }

  void add(Random& random, const Choice& choice, int32_t vocab_size) {
    temperature.push_back(choice.temperature);
    top_k.push_back(choice.top_k);
    top_p.push_back(choice.top_p);
    min_p.push_back(choice.min_p);
    seeds.push_back(random.bits());
    choice_indices.push_back(random.below(4));
    positions.push_back(random.below(9000));
    repetition.push_back(1.3f);
    frequency.push_back(0.2f);
    presence.push_back(0.4f);
    penalty_rows.push_back(choice.penalties ? static_cast<int32_t>(output_counts.size()) / vocab_size : -1);
    for (int32_t i = 0; choice.penalties && i < vocab_size; ++i) {
      output_counts.push_back(random.below(8) == 0 ? random.below(5) : 0);
      prompt_tokens.push_back(random.below(4) == 0);
    }
    for (int32_t i = 0; choice.bias && i < 9; ++i) {
      bias_token_ids.push_back(random.below(vocab_size));
      bias_values.push_back(random.uniform(6.0f));
    }
    for (int32_t i = 0; choice.bans && i < 20; ++i) banned_token_ids.push_back(random.below(vocab_size));
    const int32_t num_words = (vocab_size + 31) / 32;
    allowed_rows.push_back(choice.mask ? static_cast<int32_t>(allowed_tokens.size()) / num_words : -1);
    for (int32_t i = 0; choice.mask && i < num_words; ++i) {
      allowed_tokens.push_back(i == 0 ? 1u : i % 3 == 0 ? 0u : i % 3 == 1 ? ~0u : static_cast<uint32_t>(random.bits()));
    }
    bias_starts.push_back(static_cast<int32_t>(bias_token_ids.size()));
    banned_starts.push_back(static_cast<int32_t>(banned_token_ids.size()));
  }

  SampleOp op(const std::vector<float>& logits, int32_t vocab_size, Results& results) const {
    return {.logits = logits.data(), .num_rows = static_cast<int32_t>(seeds.size()), .vocab_size = vocab_size,
            .num_top = kTop, .temperature = temperature.data(), .top_k = top_k.data(), .top_p = top_p.data(),
            .min_p = min_p.data(), .seeds = seeds.data(), .choice_indices = choice_indices.data(),
            .positions = positions.data(), .repetition_penalty = repetition.data(),
            .frequency_penalty = frequency.data(), .presence_penalty = presence.data(),
            .penalty_rows = penalty_rows.data(), .output_counts = output_counts.data(),
            .prompt_tokens = prompt_tokens.data(), .bias_starts = bias_starts.data(),
            .bias_token_ids = bias_token_ids.data(), .bias_values = bias_values.data(),
            .banned_starts = banned_starts.data(), .banned_token_ids = banned_token_ids.data(),
            .allowed_rows = allowed_rows.data(), .allowed_tokens = allowed_tokens.data(),
            .token_ids = results.token_ids.data(), .out = results.arrays()};
  }
};

void run_sample_case(Machine& machine, const std::string& name, int32_t vocab_size, const std::vector<float>& logits) {
  Random random(static_cast<uint64_t>(vocab_size));
  const Batch batch(random, vocab_size);
  Results results(static_cast<int32_t>(batch.seeds.size()));
  const SampleOp op = batch.op(logits, vocab_size, results);
  machine.several.run([&](Worker& worker) { machine.kernels.sample(op, worker); },
                      machine.kernels.sample_scratch_bytes(vocab_size));
  report("sample/" + name + "/vocab=" + std::to_string(vocab_size), results.digest());
}

// Whole numbers: many logits are equal.
std::vector<float> tied(std::vector<float> logits) {
  for (float& logit : logits) logit = __builtin_rintf(logit);
  return logits;
}

}  // namespace

void run_sampling_cases(Machine& machine) {
  Random random(5);
  for (const int32_t vocab_size : {16, 100, 2500}) {
    const int64_t count = static_cast<int64_t>(choices().size()) * vocab_size;
    for (const float magnitude : {0.5f, 4.0f, 30.0f}) {
      const std::string name = "magnitude=" + std::to_string(static_cast<int32_t>(magnitude));
      const std::vector<float> logits = random.floats(count, magnitude);
      run_logprobs_case(machine, name, vocab_size, logits);
      run_sample_case(machine, name, vocab_size, logits);
    }
    const std::vector<float> equal = tied(random.floats(count, 6.0f));
    run_logprobs_case(machine, "tied", vocab_size, equal);
    run_sample_case(machine, "tied", vocab_size, equal);
    const std::vector<float> hostile = random.any_floats(count);
    run_logprobs_case(machine, "any", vocab_size, hostile);
    run_sample_case(machine, "any", vocab_size, hostile);
  }
}

}  // namespace octavo::digest
