// The C ABI: exceptions become a code and a message, handles become objects.
#include <exception>
#include <string>

#include "error.h"
#include "isa.h"
#include "kv_store.h"
#include "octavo_native.h"
#include "program.h"
#include "sampler.h"
#include "thread_pool.h"

namespace {

thread_local std::string last_error;

template <class Body>
int32_t guarded(const Body& body) noexcept {
  try {
    body();
    return 0;
  } catch (const octavo::WeightError& error) {
    last_error = error.what();
    return OCTAVO_BAD_WEIGHT;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an unknown exception";
  }
  return 1;
}

template <class T>
T& object(void* handle) {
  octavo::check(handle != nullptr, "a handle is null");
  return *static_cast<T*>(handle);
}

}  // namespace

int32_t octavo_abi_version(void) { return OCTAVO_ABI_VERSION; }
const char* octavo_last_error(void) { return last_error.c_str(); }
const char* octavo_compiled_isas(void) { return octavo::compiled_isas().c_str(); }
const char* octavo_available_isas(void) { return octavo::available_isas().c_str(); }

int32_t octavo_pool_create(int32_t num_threads, void** pool) {
  return guarded([&] { *pool = new octavo::ThreadPool(num_threads); });
}

void octavo_pool_destroy(void* pool) { delete static_cast<octavo::ThreadPool*>(pool); }

int32_t octavo_kv_create(const OctavoKvShape* shape, void** kv) {
  return guarded([&] {
    *kv = new octavo::KvStore({nullptr, static_cast<octavo::KvDtype>(shape->dtype), shape->num_layers, shape->num_blocks,
                               shape->num_kv_heads, shape->head_dim, shape->block_size, 0});
  });
}

void octavo_kv_destroy(void* kv) { delete static_cast<octavo::KvStore*>(kv); }

int64_t octavo_kv_num_bytes(void* kv) { return static_cast<octavo::KvStore*>(kv)->num_bytes(); }

int32_t octavo_kv_read_block(void* kv, void* pool, int32_t layer, int32_t block, void* logical) {
  return guarded([&] {
    object<octavo::ThreadPool>(pool).give_up();
    object<octavo::KvStore>(kv).read_block(layer, block, static_cast<std::byte*>(logical));
  });
}

int32_t octavo_kv_write_block(void* kv, void* pool, int32_t layer, int32_t block, const void* logical) {
  return guarded([&] {
    object<octavo::ThreadPool>(pool).give_up();
    object<octavo::KvStore>(kv).write_block(layer, block, static_cast<const std::byte*>(logical));
  });
}

int32_t octavo_kv_copy_blocks(void* kv, void* pool, const int32_t* pairs, int64_t num_pairs) {
  return guarded([&] { object<octavo::KvStore>(kv).copy_blocks(pairs, num_pairs, object<octavo::ThreadPool>(pool)); });
}

int32_t octavo_program_create(const OctavoProgramSpec* spec, void* pool, void* kv, void** program) {
  return guarded([&] {
    *program = new octavo::Program(*spec, object<octavo::ThreadPool>(pool), static_cast<octavo::KvStore*>(kv));
  });
}

void octavo_program_destroy(void* program) { delete static_cast<octavo::Program*>(program); }

int32_t octavo_program_step(void* program, const OctavoStep* step) {
  return guarded([&] { object<octavo::Program>(program).step(*step); });
}

int32_t octavo_program_step_and_sample(void* program, const OctavoStep* step, const OctavoSampling* sampling) {
  return guarded([&] { object<octavo::Program>(program).step_and_sample(*step, *sampling); });
}

int32_t octavo_program_logits(void* program, const int32_t* rows, int32_t num_rows) {
  return guarded([&] { object<octavo::Program>(program).logits(rows, num_rows); });
}

const float* octavo_program_logits_data(void* program) { return static_cast<octavo::Program*>(program)->logits_data(); }

float* octavo_program_slot_data(void* program, int32_t slot) {
  return static_cast<octavo::Program*>(program)->slot_data(slot);
}

int64_t octavo_program_weight_bytes(void* program) { return static_cast<octavo::Program*>(program)->weight_bytes(); }

int32_t octavo_program_set_adapter(void* program, int32_t slot, const OctavoLowRank* pairs, int32_t num_pairs) {
  return guarded([&] { object<octavo::Program>(program).set_adapter(slot, pairs, num_pairs); });
}

int64_t octavo_program_adapter_bytes(void* program) { return static_cast<octavo::Program*>(program)->adapter_bytes(); }

void octavo_program_share_passes(void* program, int32_t share) {
  static_cast<octavo::Program*>(program)->share_passes(share != 0);
}

void octavo_program_begin_early(void* program, int32_t when) {
  static_cast<octavo::Program*>(program)->begin_early(static_cast<octavo::BeginEarly>(when));
}

int64_t octavo_program_num_early_steps(void* program) {
  return static_cast<octavo::Program*>(program)->num_early_steps();
}

int32_t octavo_program_num_shared_passes(void* program) {
  return static_cast<octavo::Program*>(program)->num_shared_passes();
}

int32_t octavo_sample(void* pool, const char* isa, const OctavoSampling* sampling) {
  return guarded([&] { octavo::sample(*sampling, octavo::kernel_table(isa), object<octavo::ThreadPool>(pool)); });
}

int32_t octavo_logprobs(void* pool, const char* isa, const OctavoSampling* sampling) {
  return guarded([&] { octavo::logprobs(*sampling, octavo::kernel_table(isa), object<octavo::ThreadPool>(pool)); });
}

int32_t octavo_probe(void* pool, const char* isa, int32_t kind, const void* bytes, int64_t num_bytes,
                     int64_t repetitions, int64_t* operations) {
  return guarded([&] {
    octavo::check(kind >= 0 && kind <= 4, "there is no such probe");
    octavo::check(num_bytes % (1 << 20) == 0, "the probe reads whole MiB");
    const octavo::KernelTable& kernels = octavo::kernel_table(isa);
    alignas(64) int64_t turn[8] = {};
    const octavo::ProbeOp op{static_cast<octavo::ProbeKind>(kind), static_cast<const std::byte*>(bytes), num_bytes, repetitions,
                             turn};
    object<octavo::ThreadPool>(pool).run([&](octavo::Worker& worker) { kernels.probe(op, worker); });
    *operations = kernels.probe_operations(op.kind);
  });
}
