(** Sliding counter under changes and refunds. The model of [src/algorithm/sliding_counter.rs] and
    [lua/sliding_counter.lua]. *)

From Proofs Require Import Changes Carried FixedWindow.

Record pair := Pair {
  this : Z; before : Z; pair_window : Z; pair_last : Z; old_pairs : list group
}.

Definition falling (end_ w : Z) : ramp := Ramp end_ (end_ + w).

(** The two counters at a time. *)
Definition two (q : quota) (s : pair) (now : Z) : Z * Z :=
  let e := next_edge now (window q) in
  let last := next_edge (pair_last s) (window q) in
  if pair_window s =? window q then
    if e =? last then (this s, before s) else if e =? last + window q then (0, this s) else (0, 0)
  else (0, 0).

Definition pairs_into (q : quota) (s : pair) (now : Z) : list group :=
  if pair_window s =? window q then old_pairs s
  else
    let w := window q in
    let later := falling (next_edge (pair_last s) w) w in
    let end_ := next_edge (pair_last s) (pair_window s) in
    let start := end_ - pair_window s in
    let later_before := falling (next_edge (Z.max 0 (start - 1)) w) w in
    unexpired now (add_group (add_group (bound_by later (old_pairs s))
      (Group (before s) (falling start (pair_window s)) later_before))
      (Group (this s) (falling end_ (pair_window s)) later)).

Definition counter_used (q : quota) (s : pair) (now t : Z) : Z :=
  let e := next_edge now (window q) in
  let (k, p) := two q s now in
  weight (Ramp (e - window q) e) p t + weight (Ramp e (e + window q)) k t
    + weigh t (pairs_into q s now).

(** The estimate of both counters, without what is carried. *)
Definition estimated (q : quota) (s : pair) (now : Z) : Z :=
  let (k, p) := two q s now in k + ceiling (p * (next_edge now (window q) - now)) (window q).

Definition counter_charge (q : quota) (s : pair) (now c : Z) : pair * mark :=
  let (k, p) := two q s now in
  (Pair (k + c) p (window q) now (unexpired now (pairs_into q s now)),
   (next_edge now (window q) - window q, 0, 0)).

Definition counter_wait (q : quota) (s : pair) (now c : Z) : Z :=
  let target := limit q - c in
  let w := window q in
  let e := next_edge now w in
  let (k, p) := two q s now in
  match pairs_into q s now with
  | [] =>
      if target <? k then e + w - target * w / k - now
      else if estimated q s now <=? target then 0
      else e - (target - k) * w / p - now
  | gs => first_time now (Z.max (last_end gs) (e + w)) target (counter_used q s now) - now
  end.

Definition counter_refund (q : quota) (s : pair) (now : Z) (r : receipt) (u : Z) : pair * Z :=
  let '(start, _, _) := left_mark r in
  let w := window (charged_under r) in
  let end_ := start + w in
  let own := falling end_ w in
  let last := next_edge (pair_last s) (pair_window s) in
  let is_this := (pair_window s =? w) && (end_ =? last) in
  let is_before := (pair_window s =? w) && (end_ + w =? last) in
  if counts own now (pairs_into q s now) ||
     ((is_this || is_before) && (window q =? w) && (now <? zero own))
  then
    if is_this && (0 <? this s) then
      let k := Z.max 0 (Z.min u (this s)) in
      (Pair (this s - k) (before s) (pair_window s) (pair_last s) (old_pairs s), k)
    else if is_before && (0 <? before s) then
      let k := Z.max 0 (Z.min u (before s)) in
      (Pair (this s) (before s - k) (pair_window s) (pair_last s) (old_pairs s), k)
    else
      let (gs, k) := take_from own now u (old_pairs s) in
      (Pair (this s) (before s) (pair_window s) (pair_last s) gs, k)
  else (s, 0).

Definition changing_counter : limiter := {|
  kept := pair;
  unused := Pair 0 0 0 0 [];
  most_free := limit;
  free_under q s now := Z.max 0 (limit q - (estimated q s now + weigh now (pairs_into q s now)));
  charge_under := counter_charge;
  wait_under := counter_wait;
  refund_under := counter_refund
|}.
