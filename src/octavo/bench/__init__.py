"""What measures Octavo: `octavo bench`, and the parts that benchmarks beside other engines share with it."""
