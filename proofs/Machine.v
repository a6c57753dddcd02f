(** An algorithm as a machine, and the histories of one key.

    A machine is the model of a file in [src/algorithm] and of its twin in [lua/]. All numbers are
    integers: units, and microseconds. A history lists the charges of a key, the newest first.

    A history is [legal] if time never runs backward and each charge was free when it was made. Nothing
    is said of why it was made: a check may have made it, or the grant of a lease, and another charge
    of the same check may have decided that it is made. So a bound of all legal histories is a bound of
    all of these. A denial charges nothing, so it leaves no trace in a history. *)

From Coq Require Export ZArith List Lia Bool.
Export ListNotations.
Open Scope Z_scope.

Record machine := Machine {
  state : Type;
  empty : state;
  (** The most units that can be free. *)
  capacity : Z;
  (** The units that are free at a time. *)
  free : state -> Z -> Z;
  (** The state after units are charged at a time. *)
  charge : state -> Z -> Z -> state;
  (** The shortest wait from a time on until units are free. *)
  wait : state -> Z -> Z -> Z
}.

Definition history := list (Z * Z).

Fixpoint after (m : machine) (h : history) : state m :=
  match h with
  | [] => empty m
  | (t, c) :: older => charge m (after m older) t c
  end.

Definition latest (h : history) : Z := match h with [] => 0 | (t, _) :: _ => t end.

Fixpoint legal (m : machine) (h : history) : Prop :=
  match h with
  | [] => True
  | (t, c) :: older => legal m older /\ latest older <= t /\ 0 < c <= free m (after m older) t
  end.

(** A check of one charge: spends [c] units at [t] if they are free. *)
Definition admits (m : machine) (s : state m) (t c : Z) : bool := c <=? free m s t.

Fixpoint checks (m : machine) (asked : history) : history :=
  match asked with
  | [] => []
  | (t, c) :: older =>
      let h := checks m older in
      if (0 <? c) && admits m (after m h) t c then (t, c) :: h else h
  end.

(** The units of the charges whose times a test accepts. *)
Fixpoint units (accepts : Z -> bool) (h : history) : Z :=
  match h with
  | [] => 0
  | (t, c) :: older => (if accepts t then c else 0) + units accepts older
  end.

(** The times in [(from, to]]. A trailing window is [within (x - W) x]. *)
Definition within (from to t : Z) : bool := (from <? t) && (t <=? to).
Definition newer (from t : Z) : bool := from <? t.

(** Whatever is asked, in the order of time from 0 on: what is admitted is legal. *)
Fixpoint in_order (h : history) : Prop :=
  match h with [] => True | (t, _) :: older => in_order older /\ latest older <= t end.

Lemma checks_latest : forall m asked, in_order asked -> latest (checks m asked) <= latest asked.
Proof.
  induction asked as [|[t c] older IH]; cbn; [lia|]. intros [Ho Hl]. specialize (IH Ho).
  destruct ((0 <? c) && _); cbn; lia.
Qed.

Theorem what_checks_admit_is_legal : forall m asked, in_order asked -> legal m (checks m asked).
Proof.
  induction asked as [|[t c] older IH]; cbn; [trivial|]. intros [Ho Hl].
  specialize (IH Ho). pose proof (checks_latest m older Ho).
  destruct ((0 <? c) && _) eqn:E; [|exact IH].
  apply andb_prop in E as [E1 E2]. unfold admits in E2. cbn. repeat split; try assumption; lia.
Qed.

(** Units of a history, compared and counted. *)

Lemma units_nonneg : forall m accepts h, legal m h -> 0 <= units accepts h.
Proof.
  induction h as [|[t c] h IH]; cbn; [lia|]. intros [H ?]. specialize (IH H).
  destruct (accepts t); lia.
Qed.

Lemma units_mono : forall m a b h, legal m h -> (forall t, a t = true -> b t = true) ->
  units a h <= units b h.
Proof.
  induction h as [|[t c] h IH]; cbn; [lia|]. intros [H ?] Hab. specialize (IH H Hab).
  destruct (a t) eqn:E; [rewrite (Hab _ E)|destruct (b t)]; lia.
Qed.

(** Times that one of two tests accepts. *)
Lemma units_cover : forall m a b d h, legal m h ->
  (forall t, a t = true -> b t = true \/ d t = true) -> units a h <= units b h + units d h.
Proof.
  induction h as [|[t c] h IH]; cbn; [lia|]. intros [H ?] Hab. specialize (IH H Hab).
  destruct (a t) eqn:E; [destruct (Hab _ E) as [E' | E']; rewrite E'|]; [destruct (d t)|
    destruct (b t)|destruct (b t), (d t)]; lia.
Qed.

Lemma legal_times : forall m h, legal m h -> Forall (fun charge => fst charge <= latest h) h.
Proof.
  induction h as [|[t c] h IH]; cbn; [constructor|]. intros (H & Hl & _).
  constructor; [cbn; lia|]. eapply Forall_impl; [|exact (IH H)]. cbn. intros. lia.
Qed.

Lemma units_none : forall accepts h, Forall (fun charge => accepts (fst charge) = false) h ->
  units accepts h = 0.
Proof.
  induction h as [|[t c] h IH]; cbn; [trivial|]. intros H. inversion H as [|? ? E H']; subst.
  cbn in E. rewrite E, (IH H'). lia.
Qed.

Lemma none_newer_than_latest : forall m h from, legal m h -> latest h <= from ->
  units (newer from) h = 0.
Proof.
  intros m h from H Hl. apply units_none. eapply Forall_impl; [|exact (legal_times m h H)].
  cbn. unfold newer. intros. lia.
Qed.

Lemma within_is_newer : forall m h from to, legal m h -> latest h <= to ->
  units (within from to) h = units (newer from) h.
Proof.
  intros m h from to H Hl. pose proof (legal_times m h H) as T. clear H.
  induction T as [|[t c] h' Ht T IH]; cbn; [trivial|]. rewrite IH. cbn in Ht.
  unfold within, newer. replace (t <=? to) with true by (symmetry; lia).
  rewrite andb_true_r. reflexivity.
Qed.

(** The published bound of an algorithm: no window of length [d] has more units. *)
Definition bounded (m : machine) (d most : Z) : Prop :=
  forall h x, legal m h -> units (within (x - d) x) h <= most.

(** It suffices to look at windows that end with the newest charge or later: a window that ends before
    it is one of an older history, which is legal too. *)
Lemma bound_of_windows : forall m d most, 0 <= most ->
  (forall h x, legal m h -> latest h <= x -> x - d < latest h ->
    units (newer (x - d)) h <= most) ->
  bounded m d most.
Proof.
  intros m d most Hm Hb h x H.
  destruct (Z_le_gt_dec (latest h) x) as [Hx|Hx].
  - rewrite (within_is_newer m) by assumption.
    destruct (Z_lt_ge_dec (x - d) (latest h)); [apply Hb; assumption|].
    rewrite (none_newer_than_latest m) by (assumption || lia). lia.
  - induction h as [|[t c] h IH]; cbn in *; [lia|]. destruct H as [H [Hl _]].
    unfold within at 1. replace (t <=? x) with false by (symmetry; lia). rewrite andb_false_r.
    cbn. destruct (Z_le_gt_dec (latest h) x) as [Hx'|Hx']; [|apply IH; [assumption|lia]].
    rewrite (within_is_newer m) by assumption.
    destruct (Z_lt_ge_dec (x - d) (latest h)); [apply Hb; assumption|].
    rewrite (none_newer_than_latest m) by (assumption || lia). lia.
Qed.

(** Exact waits: units are free from the end of the wait on, and at no time before. *)
Definition exact_wait (m : machine) : Prop :=
  forall h now c t, legal m h -> latest h <= now -> 0 < c <= capacity m -> now <= t ->
    0 <= wait m (after m h) now c /\
    (c <= free m (after m h) t <-> now + wait m (after m h) now c <= t).
